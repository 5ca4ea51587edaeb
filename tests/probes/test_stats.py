"""Intervals that cover what they should."""

import numpy as np
import pytest
from scipy.stats import binomtest

from probes.stats import Intervals, bootstrap_mean, wilson


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
        bootstrap_mean(rows_that_are_right_or_wrong_as_a_whole(seed)[None], counts, weights, seed)
        for seed in range(200)
    ]
    covered = np.mean([one.low <= 0.7 <= one.high for (one,) in found])
    assert covered > 0.88
    # An interval that takes tokens for independent is far too narrow.
    naive = [
        wilson(rows_that_are_right_or_wrong_as_a_whole(seed).sum(keepdims=True), np.array([600.0]))
        for seed in range(200)
    ]
    assert np.mean([low[0] <= 0.7 <= high[0] for low, high in naive]) < 0.6


def numbers(found: Intervals) -> list[float]:
    """The value and both ends of the only interval."""
    return [float(part[0]) for part in (found.value, found.low, found.high)]


def test_a_weighted_row_counts_as_often_as_its_weight() -> None:
    once = bootstrap_mean(np.array([[3.0, 0.0]]), np.array([5.0, 5.0]), np.array([90.0, 10.0]), 0)
    written_out = bootstrap_mean(np.array([[3.0] * 90 + [0.0] * 10]), np.full(100, 5.0), np.ones(100), 0)
    assert numbers(once) == pytest.approx(numbers(written_out), abs=0.01)
    assert once.value[0] == pytest.approx(0.54)
    assert once.low[0] < 0.52
    certain = bootstrap_mean(np.array([[3.0]]), np.array([5.0]), np.array([100.0]), 0)
    assert numbers(certain) == pytest.approx([0.6, 0.6, 0.6])
