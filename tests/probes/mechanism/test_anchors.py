"""Anchors that are planted by formula are found, near misses are told apart, and noise has none."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mechanism_nulls import has_anchor
from planted_anchor import MOD10, Formula, Planted
from torch import Tensor

from models import CountLensError, TransformerConfig, build_counter
from models.header import CheckpointInfo
from probes.mechanism.anchor_formulas import ANCHORS, Anchor
from probes.mechanism.anchors import anchor_probe
from probes.mechanism.handbuilt import handbuilt_counter
from probes.result import NotApplicable
from training.tasks import make_task, task_settings

probe = partial(anchor_probe, rows=24)  # what is planted shows on few rows, and false alarms are likelier


def planted(name: str) -> Planted:
    return Planted(lambda pids: ANCHORS[name].distance(pids, 10))


@pytest.mark.parametrize("name", ANCHORS)
def test_a_planted_anchor_is_found_and_explains_everything(name: str) -> None:
    if name == "none (own PID)":
        return  # it is right only where rows begin at 0: see below
    result = probe(planted(name))
    assert result.best.name == name
    assert result.best.accuracy.value > 0.99
    assert result.stands_out
    assert result.lead.low > 0


def test_who_does_not_correct_for_the_shift_is_found_out() -> None:
    result = probe(planted("none (own PID)"))
    assert result.right < 0.2
    assert result.best.name == "none (own PID)"


@pytest.mark.parametrize("index", [1, 5])
def test_a_later_token_is_not_taken_for_the_first(index: int) -> None:
    """Swapping whole rows could not tell these from the first token."""
    result = probe(planted(f"token {index + 1}"))
    scores = {score.name: score.accuracy.value for score in result.anchors}
    assert scores["first token"] < 0.9
    assert result.verdict.agrees is False
    assert probe(planted("first token")).verdict.agrees is True


def test_moves_say_which_tokens_the_answers_follow() -> None:
    follows = {move.tokens: move.follows.value for move in probe(planted("beginning of 5")).moves}
    assert follows["own"] == follows["first 3"] == follows["first 5"] == follows["first 8"] == 1
    assert follows["first 2"] == follows["token 1"] == follows["token 2"] == 0


def test_an_anchor_half_of_the_time_has_half_of_the_answers() -> None:
    """Every other row by its first token, the others by their second one: graded, and not a cliff."""

    def formula(pids: Tensor) -> Tensor:
        even = (pids[:, 30:31] % 2 == 0).expand(pids.shape)
        return torch.where(even, *(ANCHORS[name].distance(pids, 10) for name in ("first token", "token 2")))

    result = probe(Planted(formula))
    scores = {score.name: score.accuracy.value for score in result.anchors}
    assert scores["first token"] == pytest.approx(scores["token 2"], abs=0.1)
    assert 0.7 < scores["first token"] < 0.98
    assert not (result.stands_out and result.best.accuracy.value > 0.98)


def column(pids: Tensor) -> Tensor:
    return torch.arange(pids.shape[-1])


def vote_of(columns: list[int]) -> Formula:
    """The distance from the beginning that most of these tokens imply."""
    return lambda pids: pids - (pids - column(pids))[..., columns].mode(-1, keepdim=True).values


def previous(pids: Tensor) -> Tensor:
    """The PID of the token before; before the first one, what it would be."""
    return torch.cat([pids[..., :1] - 1, pids[..., :-1]], -1)


def first_within_four(pids: Tensor) -> Tensor:
    """From the first token, as long as it is within four places of where the second one says."""
    by_second = pids[..., 1:2] - 1
    return pids - pids[..., :1].where((pids[..., :1] - by_second).abs() <= 4, by_second)


FALSEHOODS: dict[str, Formula] = {
    "the previous token's PID instead of its own": lambda pids: previous(pids) - pids[..., :1] + 1,
    "tokens so far, and the step from the previous PID": lambda pids: column(pids) + pids - previous(pids) - 1,
    "the row's last token": lambda pids: pids - pids[..., -1:] + pids.shape[-1] - 1,
    "a vote of tokens 2 to 4": vote_of([1, 2, 3]),
    "a vote of tokens 1, 3 and 5": vote_of([0, 2, 4]),
    "the tenth token": lambda pids: pids - pids[..., 9:10] + 9,
    "the lowest PID so far": lambda pids: pids - pids.cummin(-1).values,
    "the highest PID so far": lambda pids: pids - pids.cummax(-1).values + column(pids),
    "the median of all implied beginnings": lambda pids: pids - (pids - column(pids)).median(-1, keepdim=True).values,
    "the first token unless it is far off": first_within_four,
    "the first token early and the mean later": lambda pids: torch.where(
        column(pids) < 30, *(ANCHORS[name].distance(pids, 10) for name in ("first token", "mean"))
    ),
    "the first token at every other token": lambda pids: (pids - pids[..., :1]).where(
        column(pids) % 2 == 0, column(pids)
    ),
    "half way between tokens 1 and 2": lambda pids: pids - (pids[..., :1] + pids[..., 1:2] - 1) // 2,
    "the first token, modulo 5": lambda pids: (pids - pids[..., :1]) % 5,
    "the first token, for PIDs below 64": lambda pids: (pids - pids[..., :1]) * (pids < 64),
}


@pytest.mark.parametrize("name", FALSEHOODS)
def test_what_is_no_stated_anchor_is_never_a_strong_one(name: str) -> None:
    """Rows with nothing moved are answered right, or half of them; moves of the first tokens alone do not tell."""
    result = probe(Planted(lambda pids: FALSEHOODS[name](pids).double()))
    assert result.grade != "strong"


def test_an_anchor_that_fails_at_a_kind_of_move_is_weak_and_the_verdict_says_where() -> None:
    result = probe(Planted(lambda pids: FALSEHOODS["the previous token's PID instead of its own"](pids).double()))
    assert result.best.accuracy.low > 0.9  # of all kinds of moves, of which the own PID's is one
    assert (result.worst_move, result.grade) == ("own", "weak")
    assert "nothing of moves of the token's own PID" in result.verdict.sentence
    assert result.verdict.agrees is False


def test_a_verdict_about_half_of_the_tokens_says_so() -> None:
    result = probe(Planted(lambda pids: FALSEHOODS["the first token, for PIDs below 64"](pids).double()))
    assert 0.4 < result.right < 0.65
    assert "of tokens that it answers right" in result.verdict.sentence
    assert "answers right" not in probe(planted("first token")).verdict.sentence


def test_noise_has_no_anchor() -> None:
    assert not any(has_anchor(seed) for seed in range(8))


@pytest.mark.slow  # benchmarks/false_alarms.py draws a thousand
def test_of_two_hundred_counters_without_an_anchor_fewer_than_one_in_twenty_is_said_to_have_one() -> None:
    assert sum(has_anchor(seed) for seed in range(200)) < 10


def test_the_distance_from_a_vote_on_a_circle_is_that_from_the_row_s_beginning() -> None:
    """Not that from the circle's own: what is beyond training must be known as such."""
    pids = torch.arange(70, 130)[None]
    for reach in (1, 8):
        distance = ANCHORS[f"fading beginning ({reach})"].distance(pids, 10)
        torch.testing.assert_close(distance, torch.arange(60.0, dtype=torch.float64)[None])


def test_anchors_that_predict_the_same_count_once() -> None:
    """Modulo 3 a vote that fades at once is the first token's alone."""
    task = make_task("mod3")
    result = probe(Planted(lambda pids: ANCHORS["first token"].distance(pids, 3), task))
    assert result.best.name == "first token"
    assert result.stands_out
    assert "fading beginning (1)" not in [score.name for score in result.anchors]


def test_scores_are_of_distances_that_were_trained() -> None:
    """A counter that answers at random beyond training has its anchor all the same."""

    def formula(pids: Tensor) -> Tensor:
        distance = ANCHORS["token 2"].distance(pids, 10)
        return distance.where(distance < MOD10.train_length, distance + torch.randint(10, distance.shape))

    torch.manual_seed(0)
    result = probe(Planted(formula))
    assert (result.best.name, result.best.accuracy.value) == ("token 2", 1)
    assert result.best.by_distance["beyond"] < 0.5


def test_answers_that_ignore_moves_follow_no_token() -> None:
    """A counter that fits by counting tokens is explained by that, and by no PID."""
    result = probe(planted("none (tokens so far)"))
    assert all(move.changes.value == 0 for move in result.moves)
    assert "first token in" not in result.verdict.sentence


def test_accuracy_stands_beside_the_implied_distance() -> None:
    """A counter that knows only distances of training: right where the implied distance is one of them."""

    def formula(pids: Tensor) -> Tensor:
        distance = ANCHORS["first token"].distance(pids, 10)
        return distance.where(distance < MOD10.train_length, torch.zeros_like(distance))

    result = probe(Planted(formula))
    first = next(score for score in result.anchors if score.name == "first token")
    assert first.by_distance["trained"] == 1
    assert first.by_distance["beyond"] < 0.5


@pytest.mark.parametrize(
    ("mechanism", "anchor"),
    [
        ("first_position", "first token"),
        ("second_position", "token 2"),
        ("sixth_position", "token 6"),
        ("vote_of_five", "beginning of 5"),
        ("mean_position", "mean"),
    ],
)
def test_hand_built_transformers_have_the_anchor_that_was_built_in(mechanism: str, anchor: str) -> None:
    result = probe(handbuilt_counter(mechanism, make_task("mod10", bos=mechanism != "mean_position")))
    assert result.right == 1
    assert result.best.name == anchor
    assert result.grade == "strong"


def test_the_same_seed_gives_the_same_and_another_gives_other_rows() -> None:
    first, again, other = (probe(planted("beginning of 5"), seed=seed) for seed in (0, 0, 1))
    assert first.to_dict() == again.to_dict()
    assert first.to_dict() != other.to_dict()


def test_own_anchors_can_be_asked_for() -> None:
    mine = {
        "last token": Anchor("1", lambda pids, period: (pids - pids.roll(1, 1)).double()),
        "first token": ANCHORS["first token"],
    }
    assert probe(planted("first token"), mine).best.name == "first token"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "selective"}, "not modular counting"),
        ({"position": "nope"}, "ignores position ids"),
        ({"train_length": 10, "ood_length": 20}, "too short"),
    ],
)
def test_counters_without_such_an_anchor_are_told_apart(settings: dict[str, Any], message: str) -> None:
    options = SimpleNamespace(**({"task": "mod10", "position": "ape"} | settings))
    lengths = {name: value for name, value in settings.items() if name.endswith("length")}
    task = make_task(options.task, **lengths)
    counter = build_counter(TransformerConfig(task.vocab.size, options.position, d_model=8), torch.Generator())
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    with pytest.raises(NotApplicable, match=message) as raised:
        probe(counter)
    assert isinstance(raised.value, CountLensError)
