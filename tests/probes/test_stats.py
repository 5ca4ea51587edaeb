"""Intervals that cover what they should."""

import numpy as np
import pytest
from scipy.stats import binomtest

from probes.stats import Intervals, bootstrap_mean, bounded_mean, jackknife, wilson


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


def of_shares(right: np.ndarray) -> Intervals:
    """The interval of a share, from rows of five tokens that are all right or all wrong."""
    counts = np.full(len(right), 5.0)
    return bounded_mean(5.0 * right[None], counts, np.ones(len(right)), 0 * counts[None], counts[None], 0)


@pytest.mark.parametrize("rows", [16, 64])
def test_an_interval_at_0_or_100_percent_is_as_wide_as_the_exact_one(rows: int) -> None:
    none, every = numbers(of_shares(np.zeros(rows))), numbers(of_shares(np.ones(rows)))
    exact = binomtest(0, rows).proportion_ci(0.95, "exact").high
    assert none[:2] == [0, 0]
    assert none[2] == pytest.approx(exact, rel=0.35)
    assert every == pytest.approx([1, 1 - none[2], 1], abs=0.02)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.97])
def test_bounded_intervals_cover_the_truth_near_the_bounds_too(share: float) -> None:
    covered = 0
    for seed in range(200):
        (found,) = of_shares((np.random.default_rng(seed).random(40) < share).astype(float))
        covered += found.low <= share <= found.high
    assert covered >= 180


def test_the_jackknife_of_a_mean_is_student_s_interval() -> None:
    x = np.random.default_rng(0).normal(size=6)
    (found,) = jackknife(lambda kept: np.array([x[kept].mean()]), 6)
    half = 2.5705818 * x.std(ddof=1) / np.sqrt(6)
    assert (found.low, found.value, found.high) == pytest.approx((x.mean() - half, x.mean(), x.mean() + half))
