"""Ways to count on from a start number that are planted by formula are told apart, and noise has none."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from models import TransformerConfig, load_counter
from models.header import CheckpointInfo
from models.transformer import Transformer
from probes.mechanism.start_distance import BEYOND, TRAINED, WAYS, start_distance
from probes.result import NotApplicable
from training.tasks import NOT_SCORED, make_task, task_settings

HELPER = make_task("helper")  # one start number, so that there is nothing to swap
ROWS = 24


class Planted(Transformer):
    """A counter that adds what a formula on position ids says to its start number."""

    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        super().__init__(TransformerConfig(HELPER.vocab.size, "ape", d_model=8))
        self.formula = formula
        self.info = CheckpointInfo("transformer", {}, task=task_settings(HELPER), policy="shifted")
        row = ["1", *["a"] * 160]
        self.labels = HELPER.label(torch.tensor([HELPER.vocab.encode(row)]))[0]

    def forward(self, token_ids: Tensor, position_ids: Tensor) -> Tensor:
        answers = self.labels[self.formula(position_ids).clamp(0, 160)]
        return nn.functional.one_hot(answers.where(answers != NOT_SCORED, 0), HELPER.vocab.size).float()


def planted(way: str) -> Planted:
    return Planted(WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_way_is_found_and_explains_everything(way: str) -> None:
    found = start_distance(planted(way), rows=ROWS)
    assert found.best == way
    assert found.stands_out
    assert found.scores[way].value == 1
    assert found.headline.label == f"start + {way}"
    assert {one.lengths for one in found.outcomes} == {TRAINED, BEYOND}


def test_half_of_the_rows_by_one_way_and_half_by_another_is_not_one_of_them() -> None:
    def formula(pids: Tensor) -> Tensor:
        even = pids[:, 30:31] % 2 == 0
        return torch.where(even, WAYS["PID distance"](pids), WAYS["tokens"](pids))

    found = start_distance(Planted(formula), rows=64)
    assert 0.3 < found.scores["PID distance"].value < 0.7
    assert 0.3 < found.scores["tokens"].value < 0.7
    assert not found.stands_out


def test_distances_to_the_sixth_token_are_none_of_the_ways() -> None:
    """Each way is right about it on some kinds of rows, and none on all."""
    found = start_distance(Planted(lambda pids: pids - pids[:, 5:6] + 5), rows=ROWS)
    assert found.scores[found.best].value < 0.8
    assert found.headline.label == "no way explains most answers"


def tokens(pids: Tensor) -> Tensor:
    return torch.arange(pids.shape[1]).expand(pids.shape)


FALSEHOODS: dict[str, Callable[[Tensor], Tensor]] = {
    "the second symbol": lambda pids: pids - pids[:, 2:3] + 2,
    "tokens, and the step from the previous PID": lambda pids: (
        tokens(pids) + pids.diff(dim=1, prepend=pids[:, :1] - 1) - 1
    ),
    "the smaller of tokens and PID distance": lambda pids: torch.minimum(tokens(pids), pids - pids[:, :1]),
    "the larger of tokens and PID distance": lambda pids: torch.maximum(tokens(pids), pids - pids[:, :1]),
    "half way between start token and symbol": lambda pids: pids - (pids[:, :1] + pids[:, 1:2] - 1) // 2,
    "the lowest PID so far": lambda pids: pids - pids.cummin(1).values,
    "a vote of the first three": lambda pids: pids - (pids - tokens(pids))[:, :3].mode(1, keepdim=True).values,
    "PID distance and tokens in turn": lambda pids: (pids - pids[:, :1]).where(tokens(pids) % 2 == 0, tokens(pids)),
    "PID distance below 30, then tokens": lambda pids: (pids - pids[:, :1]).where(
        pids - pids[:, :1] < 30, tokens(pids)
    ),
}


@pytest.mark.parametrize("name", FALSEHOODS)
def test_what_is_none_of_the_ways_is_one_in_part_at_most(name: str) -> None:
    label = start_distance(Planted(FALSEHOODS[name]), rows=ROWS).headline.label
    assert label.endswith("in part") or label == "no way explains most answers"


def noise(seed: int) -> Planted:
    """Right on rows as they are trained, random on all others."""
    generator = torch.Generator().manual_seed(seed)

    def formula(pids: Tensor) -> Tensor:
        place = torch.arange(pids.shape[1])
        usual = (pids - pids[:, :1] == place).all(1, keepdim=True)
        return torch.where(usual, place, torch.randint(1, 99, pids.shape, generator=generator))

    return Planted(formula)


@pytest.mark.parametrize("draws", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_noise_seldom_has_a_way(draws: int) -> None:
    found = [start_distance(noise(seed), rows=16, seed=seed).stands_out for seed in range(draws)]
    assert sum(found) <= 0.05 * draws


def test_rope_adds_the_distance_to_a_start_number_in_its_keys() -> None:
    found = start_distance(load_counter("shifted_start/rope-1L"), rows=32)
    assert found.headline.label == "start + PID distance"
    swaps = {one.done: one for one in found.outcomes if not one.way and one.lengths == TRAINED}
    key, value = (swaps[f"swapped {word} at layer 0"] for word in ("key", "value"))
    assert "enters most by the start token's key at layer 0" in found.verdict.sentence
    assert key.stands_out
    assert not value.stands_out


def test_without_position_ids_tokens_are_counted() -> None:
    assert start_distance(load_counter("helper/nope-2L"), rows=16).headline.label == "start + tokens"


@pytest.mark.parametrize("name", ["mod10/ape-1L", "mod10/rnn-1L"])
def test_counters_that_it_makes_no_sense_for(name: str) -> None:
    with pytest.raises(NotApplicable, match="no start number"):
        start_distance(load_counter(name))
