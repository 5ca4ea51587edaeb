"""Intervals of numbers: one bootstrap over rows, a jackknife, Wilson's for shares, Student's for means.

Everything is at 95 % confidence.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import ndtri, stdtrit
from scipy.stats import ttest_1samp
from torch import Tensor

CONFIDENCE = 0.95
ALPHA = 0.05  # p-values up to this one are significant
RESAMPLES = 500

OfRows = Callable[[Float[np.ndarray, "sample row"]], Float[np.ndarray, "at sample"]]  # for each set of weights
OfParts = Callable[[Int[np.ndarray, "kept"]], Float[np.ndarray, "at"]]  # from the indices of the parts that are kept


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its 95 % interval.

    >>> f"{Interval(0.5, 0.41, 0.62):.0%}"
    '50% (41% to 62%)'
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        value, low, high = (format(number, spec) for number in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"


@dataclass(frozen=True)
class Intervals:
    """Many intervals as three arrays; iterating yields them one by one as `Interval`."""

    value: Float[np.ndarray, "at"]
    low: Float[np.ndarray, "at"]
    high: Float[np.ndarray, "at"]

    def __iter__(self) -> Iterator[Interval]:
        return (Interval(*map(float, bounds)) for bounds in zip(self.value, self.low, self.high, strict=True))


def bootstrap(statistic: OfRows, weights: Float[np.ndarray, "row"], seed: int) -> Intervals:
    """A statistic of weighted rows, with an interval from resampling whole rows.

    Tokens are not resampled, because those of one row are not independent. `weights` says how many drawn rows each row
    stands for; the statistic takes many such sets of weights at once.
    """
    total = int(weights.sum())
    drawn = np.random.default_rng(seed).multinomial(total, weights / weights.sum(), size=RESAMPLES)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, resampled = statistic(weights[None])[:, 0], statistic(drawn.astype(float))
    return Intervals(value, *bounds(resampled))


def bootstrap_mean(
    sums: Float[np.ndarray, "at row"],
    counts: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    seed: int,
) -> Intervals:
    """Means over tokens with their intervals, from each row's sum and number of tokens."""
    return bootstrap(lambda drawn: sums @ drawn.T / (counts @ drawn.T), weights, seed)


def bounded_mean(
    sums: Float[np.ndarray, "at row"],
    counts: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    least: Float[np.ndarray, "at row"],
    most: Float[np.ndarray, "at row"],
    seed: int,
) -> Intervals:
    """Means over tokens, with intervals that have a width even if all rows are equal.

    Rows that all have the same sum leave a bootstrap nothing to vary. So two rows of mean length are added, one with
    the smallest sum that a row can have and one with the largest. If all of n rows have the largest sum, the interval
    reaches down by about 3/n, as the exact interval of a share does.
    """
    shares = weights / weights.sum()
    extremes = np.stack([least @ shares, most @ shares], 1)
    all_sums, all_counts = np.hstack([sums, extremes]), np.append(counts, [counts @ shares] * 2)
    value = sums @ shares / (counts @ shares)
    drawn = bootstrap_mean(all_sums, all_counts, np.append(weights, [1.0, 1.0]), seed)
    return Intervals(value, np.minimum(value, drawn.low), np.maximum(value, drawn.high))


def jackknife(statistic: OfParts, parts: int) -> Intervals:
    """Statistics of one row cut into `parts`, each with Student's interval from leaving out one part at a time.

    For numbers that are measured on a single row, so that there are no rows to resample.
    """
    everything = np.arange(parts)
    value = statistic(everything)
    without = np.array([statistic(np.delete(everything, part)) for part in everything])
    error = np.sqrt((parts - 1) / parts * ((without - without.mean(0)) ** 2).sum(0))
    half = stdtrit(parts - 1, (1 + CONFIDENCE) / 2) * error
    return Intervals(value, value - half, value + half)


def bounds(samples: Shaped[np.ndarray, "*at sample"]) -> Float[np.ndarray, "low_and_high *at"]:
    """The two quantiles between which 95 % of the samples lie."""
    return np.nanquantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=-1)


def wilson(
    right: Float[np.ndarray, "at"], scored: Float[np.ndarray, "at"]
) -> tuple[Float[np.ndarray, "at"], Float[np.ndarray, "at"]]:
    """Wilson's interval of a share, between 0 and 1; NaN if nothing is scored."""
    z = ndtri((1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = right / scored
        centre = (share + z**2 / (2 * scored)) / (1 + z**2 / scored)
        half = z * np.sqrt(share * (1 - share) / scored + (z / (2 * scored)) ** 2) / (1 + z**2 / scored)
    return centre - half, centre + half


def share_interval(right: Bool[Tensor, "judged"], independent: int | None = None) -> Interval:
    """The share of True with Wilson's interval; without any values the interval is 0 to 1.

    If the values are not all independent, `independent` says how many are; the interval is as wide as theirs.
    """
    if len(right) == 0:
        return Interval(0.0, 0.0, 1.0)
    share = float(right.double().mean())
    total = np.array([float(len(right) if independent is None else independent)])
    low, high = wilson(share * total, total)
    return Interval(share, float(low[0]), float(high[0]))


def mean_interval(values: Float[np.ndarray, "value"]) -> Interval:
    """The mean of independent values with Student's interval; NaN values are left out.

    The bounds are NaN for fewer than two values and for values that are all equal: they do not show how values vary.

    >>> [round(bound, 2) for bound in vars(mean_interval(np.array([1.0, 2.0, 3.0]))).values()]
    [2.0, -0.48, 4.48]
    """
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return Interval(np.nan, np.nan, np.nan)
    mean = float(known.mean())
    if len(known) < 2 or np.ptp(known) == 0:
        return Interval(mean, np.nan, np.nan)
    low, high = ttest_1samp(known, 0).confidence_interval(CONFIDENCE)
    return Interval(mean, float(low), float(high))


def say_p(p: float) -> str:
    """A p-value as text, rounded as reports show it.

    >>> say_p(0.00005), say_p(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
