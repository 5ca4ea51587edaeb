"""Mechanism tests find the algorithm that was built in, reject the others, and stay silent where there is none."""

import importlib
import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from models import TransformerConfig, build_counter, load_counter
from models.counter import listening
from models.handbuilt import Layout
from models.header import CheckpointInfo
from models.transformer import Block, Transformer
from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.hypotheses import MODULAR, answer_ids
from probes.mechanism.verdict import AS_IT_IS, Mechanisms, mechanisms
from probes.result import NotApplicable
from training.tasks import NOT_SCORED, Task, make_task, task_settings

FALSE_AT_MOST = 0.5
PAIRS = 64


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the usual rows: what is built in shows on few, and a false alarm is likelier on few."""
    module = importlib.import_module("probes.mechanism.verdict")
    monkeypatch.setattr(module, "SEARCH_PAIRS", 32)
    monkeypatch.setattr(module, "FIT_ROWS", 96)


def untrained(position: str, task: Task) -> Transformer:
    """A counter that knows nothing."""
    cfg = TransformerConfig(task.vocab.size, position, n_layers=2, d_model=32, n_heads=2)
    counter = build_counter(cfg, torch.Generator().manual_seed(5))
    assert isinstance(counter, Transformer)
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    return counter


def absolute_counter(task: Task) -> Transformer:
    """By first position, but every row is taken to begin at PID 0."""
    counter = handbuilt_counter("first_position", task)
    block = counter.blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        block.attn.W_V.zero_()
        block.attn.b_V[0, 0] = 1
    return counter


class Ratio(nn.Module):
    """An MLP that takes the ratio of two variables of the stream and writes it as one-hot."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, x: Tensor) -> Tensor:
        own, shares, inverse = (x @ self.layout.read(name) for name in ("kind", "shares", "inverse"))
        scale = (x @ self.layout.read("one")).clamp(min=1e-6)
        share = (own / scale * shares).sum(-1)
        count = share / inverse[..., 0].clamp(min=1e-9) - 1
        width = self.layout.widths["count"]
        hot = (count[..., None] - torch.arange(width)).abs() < 0.5
        return hot.to(x) @ self.layout.write("count")


def shares_counter() -> Transformer:
    """A selective counter with bos whose attention brings 1/n and every kind's share, and whose MLP divides them."""
    task = make_task("selective", bos=True)
    kinds = 10
    layout = Layout({"one": 1, "kind": kinds, "bos": 1, "shares": kinds, "inverse": 1, "count": 10})
    cfg = TransformerConfig(task.vocab.size, "nope", n_layers=1, d_model=layout.d_model, n_heads=1)
    counter = Transformer(cfg)
    for parameter in counter.parameters():
        nn.init.zeros_(parameter)
    block = counter.blocks[0]
    assert isinstance(block, Block)
    with torch.no_grad():
        is_kind = torch.zeros(task.vocab.size, kinds)
        is_kind[:kinds] = torch.eye(kinds)
        is_bos = torch.zeros(task.vocab.size, 1)
        is_bos[task.vocab.id("<bos>")] = 1
        counter.embed.W_E.copy_(layout.write("one") + is_kind @ layout.write("kind") + is_bos @ layout.write("bos"))
        block.attn.W_V[0, :, :kinds] = layout.read("kind")
        block.attn.W_V[0, :, kinds : kinds + 1] = layout.read("bos")
        block.attn.W_O[0, :kinds] = layout.write("shares")
        block.attn.W_O[0, kinds : kinds + 1] = layout.write("inverse")
        nn.init.constant_(block.ln1.w, math.sqrt(4 / cfg.d_model + cfg.eps))
        nn.init.constant_(block.ln2.w, 1)
        nn.init.constant_(counter.ln_final.w, 1)
        counter.unembed.W_U[:, [task.vocab.id(str(count)) for count in range(10)]] = 20 * layout.read("count")
    block.mlp = Ratio(layout)  # type: ignore[assignment]
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    return counter.eval()


def scores(result: Mechanisms) -> dict[str, float]:
    return {tested.name: tested.score.value for tested in result.hypotheses}


@pytest.mark.parametrize(
    ("truth", "name"), [("first_position", "mod10"), ("mean_position", "mod10"), ("mean_position", "mod7")]
)
def test_the_algorithm_that_was_built_in_wins_and_all_others_are_rejected(truth: str, name: str) -> None:
    result = mechanisms(handbuilt_counter(truth, make_task(name, bos=True)), pairs=PAIRS)
    assert result.winner is not None
    assert result.winner.name == truth
    found = scores(result)
    assert found.pop(truth) >= 0.99
    assert max(found.values()) < FALSE_AT_MOST
    assert [tested.name for tested in result.hypotheses if tested.explains] == [truth]
    assert f"counts by {truth}" in result.verdict.sentence


def test_a_counter_that_does_not_correct_for_the_shift_is_found_out() -> None:
    result = mechanisms(absolute_counter(make_task("mod10", bos=True)), pairs=PAIRS)
    assert result.winner is not None
    assert result.winner.name == "absolute_position"
    assert scores(result)["first_position"] < FALSE_AT_MOST


def test_shares_that_were_built_in_are_found() -> None:
    result = mechanisms(shares_counter(), pairs=PAIRS)
    assert result.winner is not None
    assert result.winner.name == "shares"
    assert scores(result)["shares"] >= 0.99
    assert scores(result)["matches"] < FALSE_AT_MOST


@pytest.mark.parametrize(
    ("position", "task"),
    [("ape", make_task("mod10")), ("sine", make_task("mod10", bos=True)), ("nope", make_task("selective"))],
)
def test_no_algorithm_explains_an_untrained_counter(position: str, task: Task) -> None:
    result = mechanisms(untrained(position, task), pairs=PAIRS)
    assert result.winner is None
    assert "None of the stated algorithms" in result.verdict.sentence


def test_a_counter_that_fits_in_another_way_is_explained_by_none() -> None:
    result = mechanisms(load_counter("mod10/spe-2L"), pairs=PAIRS)
    assert result.winner is None
    as_it_is = {(tested.name, claim.variable): claim for tested in result.hypotheses for claim in tested.claims}
    assert as_it_is["first_position", AS_IT_IS].accuracy.value > 0.95  # it does count


def test_the_sign_that_the_paper_prints_is_rejected() -> None:
    right = MODULAR["first_position"]
    printed = replace(right, outcome=lambda values: values["first"] - values["own"])
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True))
    result = mechanisms(counter, {"right": right, "printed": printed}, PAIRS)
    assert result.winner is not None
    assert result.winner.name == "right"
    assert scores(result)["printed"] < FALSE_AT_MOST


def test_an_algorithm_that_answers_alike_is_rejected_by_its_swaps_alone() -> None:
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True))
    result = mechanisms(counter, {"mean_position": MODULAR["mean_position"]}, PAIRS)
    as_it_is, *swaps = result.hypotheses[0].claims
    assert as_it_is.holds
    assert as_it_is.accuracy.value == 1
    assert not any(claim.holds for claim in swaps)
    assert result.winner is None


def test_no_hook_is_left_and_the_same_seed_gives_the_same() -> None:
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True))
    one, other = mechanisms(counter, pairs=16), mechanisms(counter, pairs=16)
    assert not any(listening(point) for point in counter.hook_dict.values())
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    assert set(one.to_frame()["hypothesis"]) == set(MODULAR)
    assert one.places_frame()["accuracy"].between(0, 1).all()


def test_tasks_without_a_stated_mechanism_say_so() -> None:
    with pytest.raises(NotApplicable, match="no mechanism is stated for helper"):
        mechanisms(untrained("ape", make_task("helper")))


def test_outcomes_that_are_no_answers_predict_nothing() -> None:
    task = make_task("selective")
    outcome = torch.tensor([0.0, 3.04, 3.5, -1.0, 10.0, 9.0])
    said = answer_ids(task, outcome)
    assert [task.vocab.decode([one])[0] if one != NOT_SCORED else None for one in said.tolist()] == [
        "0",
        "3",
        None,
        None,
        None,
        "9",
    ]
