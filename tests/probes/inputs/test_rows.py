"""Rows and intervals: the same rows as an evaluation draws, and intervals that cover what they should."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from models import TransformerConfig, build_counter
from probes.inputs.rows import bootstrap, constant_share, draw_rows, evaluating, wilson
from training.tasks import make_task


def test_wilson_is_scipy_s() -> None:
    right, scored = np.array([0.0, 3.0, 50.0, 50.0]), np.array([7.0, 10.0, 50.0, 400.0])
    low, high = wilson(right, scored)
    for index in range(4):
        expected = binomtest(int(right[index]), int(scored[index])).proportion_ci(0.95, "wilson")
        np.testing.assert_allclose([low[index], high[index]], [expected.low, expected.high], atol=1e-9)
    assert np.isnan(wilson(np.array([0.0]), np.array([0.0]))).all()


def rows_that_are_right_or_wrong_as_a_whole(seed: int) -> np.ndarray:
    """30 rows of 20 tokens each, all right with probability 0.7, else all wrong."""
    return 20.0 * (np.random.default_rng(seed).random(30) < 0.7)


def test_the_bootstrap_covers_the_truth_where_tokens_of_a_row_go_together() -> None:
    counts, weights = np.full(30, 20.0), np.ones(30)
    found = [
        bootstrap(rows_that_are_right_or_wrong_as_a_whole(seed)[None], counts, weights, seed) for seed in range(200)
    ]
    covered = np.mean([low[0] <= 0.7 <= high[0] for _, low, high in found])
    assert covered > 0.88
    # An interval that takes tokens for independent is far too narrow.
    naive = [
        wilson(rows_that_are_right_or_wrong_as_a_whole(seed).sum(keepdims=True), np.array([600.0]))
        for seed in range(200)
    ]
    assert np.mean([low[0] <= 0.7 <= high[0] for low, high in naive]) < 0.6


def test_a_weighted_row_counts_as_often_as_its_weight() -> None:
    once = bootstrap(np.array([[3.0, 0.0]]), np.array([5.0, 5.0]), np.array([90.0, 10.0]), 0)
    written_out = bootstrap(np.array([[3.0] * 90 + [0.0] * 10]), np.full(100, 5.0), np.ones(100), 0)
    assert np.ravel(once) == pytest.approx(np.ravel(written_out), abs=0.01)
    assert once[0][0] == pytest.approx(0.54)
    assert once[1][0] < 0.52
    certain = bootstrap(np.array([[3.0]]), np.array([5.0]), np.array([100.0]), 0)
    assert np.ravel(certain) == pytest.approx([0.6, 0.6, 0.6])


@pytest.mark.parametrize(
    ("name", "expected"), [("vanilla_succession", 2.0), ("first_tok_homogeneous", 0.0), ("helper", 2.0)]
)
def test_one_answer_gets_its_share_of_the_scored_labels(name: str, expected: float) -> None:
    """For the first-token task that answer is "no", and only the first token is scored."""
    task = make_task(name)
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    batch = draw_rows(counter, task, "shifted", "ind", 20, 0)
    assert len(batch.token_ids) < 21
    assert batch.weights.sum() == 20
    assert constant_share(batch, task.scored("ind", batch.label_ids)) == pytest.approx(expected)


def test_beyond_the_border_that_answer_is_one_of_those_beyond_it() -> None:
    """Every OOD row of the helper task passes 52; the counts up to 51, more frequent still, are not scored."""
    task = make_task("helper")
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    batch = draw_rows(counter, task, "shifted", "ood", 20, 0)
    scored = task.scored("ood", batch.label_ids)
    tokens = float((scored * batch.weights[:, None]).sum())
    assert constant_share(batch, scored) == pytest.approx(100 * 20 / tokens)


def test_rows_that_differ_in_positions_only_are_one_on_request() -> None:
    task = make_task("helper")
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    assert len(draw_rows(counter, task, "shifted", "ind", 20, 0).token_ids) > 1
    assert len(draw_rows(counter, task, "shifted", "ind", 20, 0, ignore_positions=True).token_ids) == 1


def test_a_counter_is_left_in_the_mode_it_was_in() -> None:
    counter = build_counter(TransformerConfig(13), torch.Generator()).train()
    with evaluating(counter):
        assert not counter.training
        assert torch.is_inference_mode_enabled()
    assert counter.training
