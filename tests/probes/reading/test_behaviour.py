"""Behaviour: counters that are right exactly where it was planted."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter
from models.config import RNNConfig
from models.counter import Counter
from probes.reading.answers import predict_tokens
from probes.reading.behaviour import _shift_p, behaviour
from probes.result import NotApplicable
from training import draw_batch
from training.evaluate import predict
from training.tasks import make_task, task_settings
from training.tasks.base import Task

Wrong = Callable[[Tensor], Tensor]  # position ids -> where it answers one too many


class Planted(Counter):
    """Knows the right answer, and says the next number where `wrong` says so."""

    def __init__(self, task: Task, wrong: Wrong, policy: str = "shifted") -> None:
        super().__init__()
        self.cfg = TransformerConfig(task.vocab.size, "ape")
        self.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy=policy)
        self.task, self.wrong = task, wrong
        self.anchor = nn.Parameter(torch.zeros(1))  # says on which device it is
        self.setup()

    def _logits(self, token_ids: Tensor, position_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        answers = self.task.label(token_ids).clamp(min=0) + self.wrong(position_ids).long()
        return 5.0 * nn.functional.one_hot(answers, self.cfg.d_vocab).float()


def columns(position_ids: Tensor) -> Tensor:
    return torch.arange(1, position_ids.shape[1] + 1).expand_as(position_ids)


def right_up_to(last: int) -> Wrong:
    """Wrong at every later position of the row."""
    return lambda position_ids: columns(position_ids) > last


def wrong_from_shift(first: int) -> Wrong:
    """Wrong in rows that are shifted so far or further."""
    return lambda position_ids: (position_ids[:, :1] >= first).expand_as(position_ids)


def never(position_ids: Tensor) -> Tensor:
    return torch.zeros_like(position_ids)


@pytest.mark.parametrize("last", [30, 49, 50, 51, 70])
@pytest.mark.parametrize("bos", [False, True])
def test_it_breaks_right_behind_the_planted_position(last: int, bos: bool) -> None:
    found = behaviour(Planted(make_task("mod10", bos=bos), right_up_to(last)), rows=200)
    assert found.breaks_at == last + 1
    assert found.trained_up_to == 50 + bos
    for split in ("ind", "ood"):
        shares = found.by_position[split]
        scored = shares.scored > 0
        expected = np.where(shares.at <= last, 100.0, 0.0)
        np.testing.assert_array_equal(shares.percent[scored], expected[scored])
    assert ("Does not fit" in found.verdict.sentence) == (last <= 30)
    assert f"first at position {last + 1} " in found.verdict.sentence


def test_a_counter_that_is_always_right_never_breaks_however_few_the_rows() -> None:
    found = behaviour(Planted(make_task("selective"), never), rows=8)
    assert found.breaks_at is None
    assert found.verdict.sentence.startswith("Fits and extrapolates: IND 100.0 %, OOD 100.0 %")
    assert not any(found.depends_on_shift(split) for split in ("ind", "ood"))


@pytest.mark.parametrize(
    ("last", "words"), [(30, "Does not fit"), (50, "does not extrapolate"), (70, "in part"), (99, "and extrapolates:")]
)
def test_the_verdict_says_how_far_it_goes(last: int, words: str) -> None:
    assert words in behaviour(Planted(make_task("mod10"), right_up_to(last))).verdict.sentence


@pytest.mark.parametrize("name", ["mod10", "selective", "helper", "first_tok_heterogeneous"])
def test_totals_and_positions_are_those_of_the_drawn_rows(name: str) -> None:
    task = make_task(name, train_length=12, ood_length=24)
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator().manual_seed(0)).eval()
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
    found = behaviour(counter, rows=40, seed=3)
    assert set(found.total) == set(task.splits)
    for split in task.splits:
        batch = draw_batch(task, "shifted", 128, split, 40, torch.Generator().manual_seed(3))  # none merged
        scored = task.scored(split, batch.label_ids)
        right = (predict(counter, batch) == batch.label_ids) & scored
        assert found.total[split].value == pytest.approx(100 * float(right.sum() / scored.sum()), abs=1e-3)
        theirs = (100 * right.sum(0) / scored.sum(0)).numpy()
        np.testing.assert_allclose(found.by_position[split].percent, theirs, atol=1e-3)
        assert found.total[split].low <= found.total[split].value <= found.total[split].high


def test_one_too_many_beyond_the_border_is_seen_beside_the_diagonal() -> None:
    found = behaviour(Planted(make_task("mod10"), right_up_to(50)), rows=60)
    assert found.answers == (*(str(number) for number in range(1, 11)), "<pad>")
    ind, ood = found.confusion["ind"], found.confusion["ood"]
    assert np.array_equal(ind, np.diag(ind.diagonal()))
    assert ind.sum() == found.by_position["ind"].scored.sum()
    assert np.array_equal(ood, np.diag(ood.diagonal(1), 1))
    assert ood.sum() == found.by_position["ood"].scored.sum()


def test_errors_from_a_shift_on_are_found_at_that_shift() -> None:
    found = behaviour(Planted(make_task("mod10"), wrong_from_shift(20)), rows=500)
    for split, room in (("ind", 77), ("ood", 27)):
        shares = found.by_shift[split]
        assert shares.at[0] == 0
        assert room <= shares.at[-1] <= 127 - 45
        np.testing.assert_array_equal(shares.percent, np.where(shares.at < 20, 100.0, 0.0))
        assert found.depends_on_shift(split)
    assert "depends on the shift (IND 0.0 to 100.0 %, OOD 0.0 to 100.0 %)" in found.verdict.sentence


def test_long_rows_at_small_shifts_are_not_taken_for_an_effect_of_the_shift() -> None:
    """Long rows leave room for small shifts only, and they are the ones with errors: the shift does nothing."""
    found = behaviour(Planted(make_task("mod10"), right_up_to(70)), rows=50)
    assert np.ptp(found.by_shift["ood"].percent) == 0
    assert "shift" not in found.verdict.sentence


def test_by_chance_shifts_differ_as_rarely_as_the_p_value_says() -> None:
    p = np.array(
        [
            _shift_p(np.random.default_rng(seed).binomial(50, 0.8, (24, 8)).astype(float), np.ones(8), seed)
            for seed in range(300)
        ]
    )
    assert (p < 0.05).mean() < 0.08
    assert 0.4 < p.mean() < 0.6


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        (lambda size: build_counter(TransformerConfig(size, "nope"), torch.Generator()), "does not see position ids"),
        (lambda size: build_counter(RNNConfig(size), torch.Generator()), "does not see position ids"),
    ],
)
def test_without_positions_there_is_no_shift_and_it_says_why(counter: Callable[[int], Counter], words: str) -> None:
    task = make_task("mod10")
    built = counter(task.vocab.size)
    built.info = CheckpointInfo("", {}, task=task_settings(task), policy="shifted")
    found = behaviour(built, rows=8)
    assert found.by_shift == {}
    assert words in str(found.why_no_shift)


def test_contiguous_positions_have_no_shift() -> None:
    found = behaviour(Planted(make_task("mod10"), never, "contiguous"), rows=8)
    assert "position ids are contiguous" in str(found.why_no_shift)


def test_the_same_seed_gives_the_same_json_and_another_one_another() -> None:
    counter = Planted(make_task("selective"), right_up_to(60))
    first, again, other = (json.dumps(behaviour(counter, 30, seed).to_dict()) for seed in (1, 1, 2))
    assert first == again != other


def test_the_table_has_every_measure() -> None:
    frame = behaviour(Planted(make_task("mod10"), right_up_to(60)), rows=30).to_frame()
    assert set(frame.measure) == {"total", "position", "shift", "confusion"}
    totals = frame[frame.measure == "total"].set_index("split").value
    cells = frame[(frame.measure == "confusion") & (frame.split == "ood")]
    assert 100 * cells[cells["at"] == cells.answer].value.sum() / cells.value.sum() == pytest.approx(totals["ood"])


def test_a_counter_of_unknown_training_is_not_scored() -> None:
    with pytest.raises(NotApplicable, match="does not say what it was trained on"):
        behaviour(build_counter(TransformerConfig(13), torch.Generator()))


def test_a_typed_row_is_labelled_and_answered_at_each_position() -> None:
    found = predict_tokens(Planted(make_task("mod10"), right_up_to(3)), "a a a a", shift=10)
    assert found.position_ids == (10, 11, 12, 13)
    assert found.labels == ("1", "2", "3", "4")
    assert found.answers == ("1", "2", "3", "5")
    assert found.right == (True, True, True, False)
    sure = np.exp(5) / (np.exp(5) + 12)
    assert found.probability == pytest.approx((sure,) * 4)
    assert found.label_probability == pytest.approx((sure, sure, sure, sure / np.exp(5)))
    assert found.verdict.sentence == "Right at 3 of 4 positions; first mistake at position 4: 5, not 4."
    assert list(found.to_frame().right) == [True, True, True, False]


def test_what_is_not_scored_has_no_label() -> None:
    found = predict_tokens(Planted(make_task("mod10", bos=True), never), ["<bos>", "a"])
    assert found.labels == (None, "1")
    assert found.right == (None, True)
    assert found.label_probability[0] is None
    assert found.verdict.sentence == "Right at 1 of 1 positions."


@pytest.mark.parametrize(
    ("tokens", "shift", "words"),
    [
        ("", 0, "an empty row"),
        ("a b a", 0, "unknown token 'b'"),
        ("a <pad>", 0, "<pad> fills up short rows"),
        ("a " * 129, 0, "129 tokens are more than the counter's max_position=128: shorten the row"),
        ("a a a", 126, r"shift=126 is outside 0\.\.125"),
        ("a", -1, r"shift=-1 is outside 0\.\.127"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(tokens: str, shift: int, words: str) -> None:
    with pytest.raises(CountLensError, match=words):
        predict_tokens(Planted(make_task("mod10"), never), tokens, shift)


def test_a_row_without_its_bos_and_a_shift_without_positions_are_refused() -> None:
    with pytest.raises(CountLensError, match="begin with <bos>, not with 'a'"):
        predict_tokens(Planted(make_task("mod10", bos=True), never), "a a")
    task = make_task("mod10")
    counter = build_counter(RNNConfig(task.vocab.size), torch.Generator()).eval()
    counter.info = CheckpointInfo("rnn", {}, task=task_settings(task), policy="shifted")
    assert len(predict_tokens(counter, "a " * 300).tokens) == 300
    with pytest.raises(CountLensError, match="has no positions, so leave the shift at 0"):
        predict_tokens(counter, "a a", shift=1)
