"""Votes on where a row begins: planted ones are found, with their weights, and what is no vote explains nothing."""

import numpy as np
import pytest

from models.errors import CountLensError
from probes.mechanism.handbuilt import handbuilt_counter
from probes.result import NotApplicable
from probes.studies.vote import (
    NOWHERE,
    VotedRows,
    draw_steps,
    fit_vote,
    followed_beginning,
    kept_answers,
    run_moved,
    unit_vectors,
)
from training.tasks import make_task

WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])
COUNTER = handbuilt_counter("first_position", make_task("mod10", bos=True))


def planted(weights: np.ndarray, rows: int = 400, wrong: float = 0.0) -> VotedRows:
    """Rows whose answers all count from where such a vote points; some are random."""
    generator = np.random.default_rng(1)
    steps = draw_steps(rows, len(weights), generator)
    said = np.round(np.angle(unit_vectors(steps, 10) @ weights) * 10 / (2 * np.pi)).astype(int) % 10
    beginnings = np.repeat(said[:, None], 20, 1)
    random = generator.random(beginnings.shape) < wrong
    beginnings[random] = generator.integers(10, size=int(random.sum()))
    return VotedRows(10, steps, beginnings, np.ones_like(beginnings, dtype=bool))


def test_planted_weights_are_found_and_explain_rows_that_they_were_not_fitted_to() -> None:
    rows = planted(WEIGHTS)
    vote = fit_vote(rows.part(slice(200)), range(6))
    np.testing.assert_allclose(vote.weights / vote.weights.sum(), WEIGHTS, atol=0.08)
    assert vote.explains(rows.part(slice(200, None))) > 0.6
    assert 2.5 < vote.effective_voters < 4
    first = fit_vote(rows.part(slice(200)), [0])
    assert first.explains(rows.part(slice(200, None))) < vote.explains(rows.part(slice(200, None))) - 0.2
    assert first.weights[1:].tolist() == [0] * 5


def test_a_counter_that_reads_the_first_token_alone_has_one_voter() -> None:
    rows = planted(np.array([1.0, 0, 0, 0, 0, 0]))
    vote, first = fit_vote(rows, range(6)), fit_vote(rows, [0])
    assert vote.effective_voters == pytest.approx(1, abs=0.02)
    assert first.explains(rows) == pytest.approx(1)
    assert rows.share(rows.steps[:, 0]) == 1


def test_noise_has_no_vote() -> None:
    rows = planted(WEIGHTS, wrong=1.0)
    vote = fit_vote(rows.part(slice(200)), range(6))
    assert vote.explains(rows.part(slice(200, None))) < 0.1


def test_answers_that_are_no_numbers_count_from_nowhere() -> None:
    rows = planted(WEIGHTS)
    mute = VotedRows(10, rows.steps, np.full_like(rows.beginnings, NOWHERE), rows.watched)
    assert mute.share(rows.steps[:, 0]) == 0
    assert np.abs(mute.directions).max() == 0


def test_what_is_not_watched_says_nothing() -> None:
    rows = planted(WEIGHTS).from_token(20)
    assert np.isnan(rows.share(rows.steps[:, 0]))
    with pytest.raises(NotApplicable, match="answers no watched token right"):
        fit_vote(rows, range(6))


def test_the_hand_built_counter_counts_from_bos_alone() -> None:
    steps = draw_steps(64, 6, np.random.default_rng(0))
    rows = run_moved(COUNTER, steps)
    assert rows.watched[:, 17:].all()
    assert not rows.watched[:, :17].any()
    assert rows.share(steps[:, 0]) == 1
    vote = fit_vote(rows, range(6))
    assert vote.weights[0] == pytest.approx(1, abs=0.01)
    assert vote.effective_voters == pytest.approx(1, abs=0.05)
    long = run_moved(COUNTER, steps, length=100).from_token(51)
    assert long.share(steps[:, 0]) == 1


def test_keys_and_values_from_elsewhere_are_moved_position_ids_to_a_counter_of_one_layer() -> None:
    steps = draw_steps(32, 6, np.random.default_rng(0))
    moved, swapped = run_moved(COUNTER, steps), run_moved(COUNTER, steps, layer=0)
    assert np.array_equal(moved.beginnings[:, 17:], swapped.beginnings[:, 17:])


def test_a_period_of_ten_is_not_seen_and_half_of_it_is() -> None:
    assert kept_answers(COUNTER, 10, tokens=1, rows=16) == 1
    assert kept_answers(COUNTER, 5, tokens=1, rows=16) == 0
    assert kept_answers(COUNTER, 5, tokens=4, rows=16) == pytest.approx(0.75)


def test_moved_together_the_first_tokens_take_every_answer_along() -> None:
    assert followed_beginning(COUNTER, tokens=5, rows=16) == 100


def test_moves_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CountLensError, match="steps of up to 11 places in rows of 51 tokens: take steps of at most 10"):
        run_moved(COUNTER, np.full((2, 3), 11))
    with pytest.raises(NotApplicable, match="is not modular counting"):
        run_moved(_other_counter(), np.zeros((2, 3), dtype=int))


def _other_counter() -> object:
    from models import load_counter

    return load_counter("selective/nope-2L")
