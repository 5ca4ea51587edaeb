"""Nulls of the mechanism probes. Each function draws one from its seed, and returns what the probe finds in it.

The tests make few draws; `benchmarks/false_alarms.py` makes a thousand.
"""

from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from planted_anchor import Broken, Planted
from planted_memory import HashedCounts, RandomTable
from scipy.stats import binom
from torch import Tensor

from models import TransformerConfig, build_counter
from models.header import CheckpointInfo
from models.transformer import Transformer
from probes.mechanism.anchor_formulas import ANCHORS
from probes.mechanism.anchors import anchor_probe
from probes.mechanism.grades import ALPHA
from probes.mechanism.handbuilt_modes import handbuilt_modes
from probes.mechanism.memory import CounterMemory
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_hypotheses import HYPOTHESES
from probes.mechanism.memory_modes import Modes
from probes.mechanism.memory_verdict import examine
from probes.mechanism.verdict import mechanisms
from training.tasks import Task, make_task, task_settings

OF_MODES = {name: HYPOTHESES[name] for name in ("slow_modes", "clock_modes")}


def most_alarms(draws: int) -> int:
    """The number of false alarms that 95 % of honest tests at the level 0.05 do not exceed."""
    return int(binom.ppf(0.95, draws, ALPHA))


def hypotheses_of(form: str) -> tuple[str, ...]:
    """The hypotheses about memories that are stated for a form of counting."""
    return tuple(name for name, hypothesis in HYPOTHESES.items() if hypothesis.form == form)


def has_anchor(seed: int) -> bool:
    """Whether a counter without an anchor is said to have one: noise (odd seeds), or a counter that moves break."""
    formula = partial(ANCHORS["first token"].distance, period=10)
    counter = Planted(formula, wrong=1.0) if seed % 2 else Broken(formula)
    counter.generator.manual_seed(seed)
    return anchor_probe(counter, rows=24, seed=seed).stands_out


def untrained(position: str, task: Task, seed: int = 5, **settings: Any) -> Transformer:
    """A counter that knows nothing."""
    cfg = TransformerConfig(task.vocab.size, position, **{"n_layers": 2, "d_model": 32, "n_heads": 2} | settings)
    counter = build_counter(cfg, torch.Generator().manual_seed(seed))
    assert isinstance(counter, Transformer)
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    return counter


@cache
def explain_untrained(seed: int) -> tuple[bool, tuple[bool, ...]]:
    """Whether an untrained counter is explained, and which of its swaps are significant.

    Its weights are large, so that its answers vary; pairs are few, so that chance has a chance.
    """
    position = ("ape", "rope", "nope", "sine")[seed % 4]
    counter = untrained(position, make_task("mod10", bos=True), seed, d_model=8, n_layers=1, init_std=0.5)
    few = {"SEARCH_PAIRS": 24, "FIT_ROWS": 32, "FAR_PAIRS": 48, "LONGER_PAIRS": 8}
    with (
        patch.multiple(import_module("probes.mechanism.examination"), **few),
        patch.object(import_module("probes.mechanism.verdict"), "ROWS", 8),
    ):
        result = mechanisms(counter, pairs=48, seed=seed)
    claims = [claim for hypothesis in result.hypotheses for claim in hypothesis.claims if not claim.ignored]
    significant = tuple(claim.p_value < ALPHA for claim in claims if claim.p_value is not None)
    return result.winner is not None, significant


@cache
def supported_by_random_table(seed: int) -> frozenset[str]:
    """The hypotheses that a memory with a random vector per count is said to support."""
    task = make_task("mod10")
    return frozenset(tested.name for tested in examine(task, RandomTable(task, seed), trials=24, seed=seed).supported)


@cache
def supported_by_hashed_counts(seed: int) -> frozenset[str]:
    """The hypotheses that a memory with a random vector per set of counts is said to support."""
    task = make_task("selective")
    return frozenset(tested.name for tested in examine(task, HashedCounts(task, seed), trials=16, seed=seed).supported)


class PairedModes(Modes):
    """Modes that are only drawn in pairs, as they are dealt out."""

    def random_key(self, generator: torch.Generator) -> Tensor:
        n_channels, n_modes = self.eigenvalues.shape
        key = torch.rand(n_channels, n_modes // 2, generator=generator, dtype=torch.float64)
        return key.repeat_interleave(2, 1)


@cache
def _planted_clock() -> tuple[Bench, Modes]:
    counter = handbuilt_modes("clock", make_task("mod10"))
    bench = Bench.of(make_task("mod10"), CounterMemory(counter), 24, seed=0)
    modes = Modes.of(counter, bench.memory.parts)
    assert torch.equal(modes.eigenvalues[:, ::2], modes.eigenvalues[:, 1::2].conj())
    return bench, modes


@cache
def supported_by_dealt_modes(seed: int) -> frozenset[str]:
    """The hypotheses about modes that are supported after the eigenvalues of a planted clock are dealt out again.

    They are dealt out in conjugate pairs, so that any modes may be called slow or clocks.
    """
    bench, modes = _planted_clock()
    generator = torch.Generator().manual_seed(seed)
    pairs = modes.eigenvalues.reshape(-1, 2)
    order = torch.randperm(len(pairs), generator=generator)
    dealt = PairedModes(modes.parts, pairs[order].reshape(modes.eigenvalues.shape), modes.vectors)
    drawn = replace(bench, generator=torch.Generator().manual_seed(seed))
    with patch.object(Modes, "of", lambda counter, parts: dealt):
        return frozenset(
            name for name, hypothesis in OF_MODES.items() if all(claim.supported for claim in hypothesis.claims(drawn))
        )
