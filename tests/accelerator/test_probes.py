"""Probes on an accelerator: every number is that of the CPU.

Numbers may differ by 1e-4, absolutely or relatively. Scores of untrained counters count which of two almost equal
values is larger, so that one rounding moves them: they may differ by 5e-3. So may p-values, of which those above 0.05
only have to stay there: equal tokens without positions have equal states, and their permutations compare rounding
errors.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import probes.over_training.dynamics
from models import load_counter
from models.counter import Counter
from models.export import to_transformer_lens
from models.find import find_checkpoint
from probes.ablation.chosen_edits import chosen_edits
from probes.mechanism.alignment_search import alignment_search
from probes.mechanism.memory_verdict import memory_mechanisms
from probes.mechanism.transplants import memory_parts, transplant
from probes.mechanism.verdict import mechanisms
from probes.patching.pairs import known_sites, pair_patch
from probes.patching.patched_row import patched_row
from probes.reading.answers import example_row, predict_tokens
from probes.reading.attention_row import attention_row
from probes.reading.state_trajectory import state_trajectory
from probes.registry import PROBES, Subject
from probes.result import NotApplicable, plain
from tests.accelerator.device import NAME
from training.config import ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import train

TOLERANCE = 1e-4
# Where rounding is magnified: a share of held-out rows jumps when one row near the border falls to the other side,
# components of nearly equal variance turn into each other, what lasts is a share of next to nothing where there is no
# period, and a p-value counts draws (two of 200 may fall to the other side).
TOLERANCES = {
    **{"p": 0.011, "p_alone": 0.011, "untrained": 5e-3, "first": 0.02, "shift": 5e-3},
    **{"coordinates": 1e-3, "lasting": 0.01},
}
P_VALUES, NOT_SIGNIFICANT = {"p", "p_alone", "q"}, 0.05
TRANSFORMERS = [
    "mod10/ape-2L",
    "selective-bos/rope-1L",
    "selective-bos/nope-1L",
    "mod10/sine-2L",
    "selective/spe-2L",
    "shifted_start/rope-2L",
]
RECURRENT = ["mod10/rnn-1L", "selective/lstm-1L", "mod10/s4-1L", "selective/mamba-1L", "mod10/rwkv6-1L"]
OTHERS = [
    "first_tok_homogeneous/ape-1L",
    "first_tok_heterogeneous/nope-1L-noncausal",
    "helper/nope-2L",
    "mod10-bos/rope-2L",
]
QUICK = {("mod10/rnn-1L", probe) for probe in ("behaviour", "first_token", "mod_pca")} | {
    ("mod10/ape-2L", "logit_lens")
}


def assert_same(value: Any, expected: Any, path: str = "") -> None:
    """Compares plain values, numbers within the tolerance."""
    assert type(value) is type(expected), path
    if isinstance(expected, dict):
        assert value.keys() == expected.keys(), path
        for key in expected:
            assert_same(value[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(value) == len(expected), path
        for index, (own, other) in enumerate(zip(value, expected, strict=True)):
            assert_same(own, other, f"{path}[{index}]")
    elif isinstance(expected, float):
        words = set(re.split(r"\W+", path))
        tolerance = max((TOLERANCES.get(word, TOLERANCE) for word in words), default=TOLERANCE)
        if not (words & P_VALUES and min(value, expected) > NOT_SIGNIFICANT):
            assert value == pytest.approx(expected, rel=tolerance, abs=tolerance), path
    else:
        assert value == expected, path


def check(name: str, analyse: Callable[[Counter], Any]) -> None:
    """An analysis of a shipped counter, which must apply, gives on the device what it gives on the CPU."""
    expected, found = (plain(analyse(load_counter(name, device))) for device in ("cpu", NAME))
    assert_same(found, expected)


def subject(name: str, device: str) -> Subject:
    return Subject(name, find_checkpoint(name), load_counter(name, device))


@pytest.mark.parametrize(
    ("name", "probe"),
    [
        pytest.param(name, probe, marks=[] if (name, probe) in QUICK else pytest.mark.slow)
        for name in [*TRANSFORMERS, *RECURRENT, *OTHERS]
        for probe in PROBES
        if probe not in ("dynamics", "mechanism")  # below
    ],
)
def test_every_probe_of_the_registry_gives_the_numbers_of_the_cpu(name: str, probe: str) -> None:
    def outcome(device: str) -> Any:
        try:
            return plain(PROBES[probe].run(subject(name, device), 0))
        except NotApplicable as reason:
            return f"not applicable: {reason}"

    expected = outcome("cpu")
    assert_same(outcome(NAME), expected)


@pytest.mark.parametrize(
    "name",
    [
        "selective-bos/rope-1L",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("shifted_start/spe-2L", "selective/s4-1L")),
        *(
            pytest.param(f"selective/{family}-1L", marks=pytest.mark.slow)
            for family in ("rnn", "lstm", "mamba", "rwkv6")
        ),
    ],
)
def test_every_site_can_be_patched(name: str) -> None:
    check(name, lambda counter: pair_patch(counter, sites=known_sites(counter), batch=2, length=4))


@pytest.mark.parametrize(
    "name", ["mod10/rnn-1L", *(pytest.param(name, marks=pytest.mark.slow) for name in RECURRENT[1:])]
)
def test_states_are_transplanted(name: str) -> None:
    check(name, lambda counter: transplant(counter, 7, 3, length=12))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mod10/rnn-1L", "mod10/s4-1L", "selective/mamba-1L"])
def test_claims_about_the_memory_are_tested(name: str) -> None:
    check(name, lambda counter: memory_mechanisms(counter, trials=8))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mod10/rnn-2L", "selective/rwkv6-1L"])
def test_parts_of_the_memory_are_transplanted(name: str) -> None:
    check(name, lambda counter: memory_parts(counter, trials=16))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mod10/ape-2L", "selective-bos/nope-1L"])
def test_mechanisms_are_tested_by_swaps(name: str) -> None:
    check(name, lambda counter: mechanisms(counter, pairs=32))


@pytest.mark.slow
def test_learning_dynamics_give_the_numbers_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(
        data=TaskOptions(task="mod10"),
        model=ModelOptions(position="ape", n_layers=1, d_model=16, n_heads=2),
        optimiser=OptimiserOptions(steps=40, batch_size=4),
        record=RecordOptions(eval_every=40, eval_rows=8, snapshots=4),
    )
    run = RunFolder.create(tmp_path / "run", resolve(config))
    train(run, progress=False)
    expected = plain(probes.over_training.dynamics.dynamics(run.path))
    monkeypatch.setattr(probes.over_training.dynamics, "load_counter", partial(load_counter, device=NAME))
    assert_same(plain(probes.over_training.dynamics.dynamics(run.path)), expected)


def answer(counter: Counter) -> Any:
    return predict_tokens(counter, example_row(counter, 12), shift=1)


def run_in_bridge(counter: Counter) -> Any:
    ids = torch.zeros(1, 5, dtype=torch.long, device=counter.device)
    with torch.no_grad():
        return to_transformer_lens(counter)(ids, position_ids=torch.arange(5, device=counter.device)[None]).tolist()


ANALYSES: list[tuple[str, Callable[[Counter], Any]]] = [
    ("selective-bos/rope-1L", answer),
    ("selective-bos/rope-1L", lambda counter: attention_row(counter, example_row(counter, 12), 0)),
    ("selective-bos/rope-1L", lambda counter: chosen_edits(counter, "averaged", rows=4)),
    ("mod10/rnn-1L", lambda counter: chosen_edits(counter, "averaged", rows=4)),
    ("mod10/rnn-1L", state_trajectory),
    ("shifted_start/spe-2L", lambda counter: patched_row(counter, "start", "resid_pre", layer=1, pos=3, length=6)),
    ("mod10/ape-2L", run_in_bridge),
    (
        "mod10/ape-2L",
        lambda counter: alignment_search(counter, "first_position", "first", layer=0, rank=2, epochs=1, pairs=16),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "analyse"), ANALYSES)
def test_other_analyses_give_the_numbers_of_the_cpu(name: str, analyse: Callable[[Counter], Any]) -> None:
    check(name, analyse)
