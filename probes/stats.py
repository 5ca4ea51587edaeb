"""How sure a number is: Wilson's interval of a share, and one bootstrap over rows for everything else."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import ndtri, stdtrit
from torch import Tensor

CONFIDENCE = 0.95
RESAMPLES = 500

OfRows = Callable[[Float[np.ndarray, "sample row"]], Float[np.ndarray, "at sample"]]  # under each set of weights
OfParts = Callable[[Int[np.ndarray, "kept"]], Float[np.ndarray, "at"]]  # from the numbers of the parts that are kept


@dataclass(frozen=True)
class Interval:
    """An estimate and what it lies between, with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """Many of them, as arrays; iterating gives one `Interval` after the other."""

    value: Float[np.ndarray, "at"]
    low: Float[np.ndarray, "at"]
    high: Float[np.ndarray, "at"]

    def __iter__(self) -> Iterator[Interval]:
        return (Interval(*map(float, bounds)) for bounds in zip(self.value, self.low, self.high, strict=True))


def bootstrap(statistic: OfRows, weights: Float[np.ndarray, "row"], seed: int) -> Intervals:
    """A statistic of weighted rows, and what it lies between when whole rows are drawn again.

    Rows, because tokens of one row go together. `weights` says how many drawn rows each stands for; the statistic
    takes many such sets of weights at once.
    """
    total = int(weights.sum())
    drawn = np.random.default_rng(seed).multinomial(total, weights / weights.sum(), size=RESAMPLES)
    with np.errstate(invalid="ignore", divide="ignore"):
        value, again = statistic(weights[None])[:, 0], statistic(drawn.astype(float))
    return Intervals(value, *bounds(again))


def bootstrap_mean(
    sums: Float[np.ndarray, "at row"],
    counts: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    seed: int,
) -> Intervals:
    """Means over tokens, from the sum and the number of tokens of each row."""
    return bootstrap(lambda drawn: sums @ drawn.T / (counts @ drawn.T), weights, seed)


def bounded_mean(
    sums: Float[np.ndarray, "at row"],
    counts: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    least: Float[np.ndarray, "at row"],
    most: Float[np.ndarray, "at row"],
    seed: int,
) -> Intervals:
    """Means over tokens whose intervals are honest where all rows are alike.

    Rows that all have the same sum leave a bootstrap nothing to vary. So two rows are drawn with the others, of mean
    length, one with the least sum that a row could have and one with the most. Where all of n rows have the most, the
    interval reaches down by some 3/n, as the exact interval of a share does.
    """
    shares = weights / weights.sum()
    extremes = np.stack([least @ shares, most @ shares], 1)
    all_sums, all_counts = np.hstack([sums, extremes]), np.append(counts, [counts @ shares] * 2)
    value = sums @ shares / (counts @ shares)
    drawn = bootstrap_mean(all_sums, all_counts, np.append(weights, [1.0, 1.0]), seed)
    return Intervals(value, np.minimum(value, drawn.low), np.maximum(value, drawn.high))


def jackknife(statistic: OfParts, parts: int) -> Intervals:
    """Statistics of so many parts of one row, and Student's interval of each, from leaving out one part at a time.

    For what is measured on a single row, which leaves no rows to draw again.
    """
    everything = np.arange(parts)
    value = statistic(everything)
    without = np.array([statistic(np.delete(everything, part)) for part in everything])
    error = np.sqrt((parts - 1) / parts * ((without - without.mean(0)) ** 2).sum(0))
    half = stdtrit(parts - 1, (1 + CONFIDENCE) / 2) * error
    return Intervals(value, value - half, value + half)


def bounds(samples: Shaped[np.ndarray, "*at sample"]) -> Float[np.ndarray, "low_and_high *at"]:
    """What 95 % of the samples lie between."""
    return np.nanquantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=-1)


def wilson(
    right: Float[np.ndarray, "at"], scored: Float[np.ndarray, "at"]
) -> tuple[Float[np.ndarray, "at"], Float[np.ndarray, "at"]]:
    """Wilson's interval of a share, between 0 and 1; NaN where nothing is scored."""
    z = ndtri((1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = right / scored
        centre = (share + z**2 / (2 * scored)) / (1 + z**2 / scored)
        half = z * np.sqrt(share * (1 - share) / scored + (z / (2 * scored)) ** 2) / (1 + z**2 / scored)
    return centre - half, centre + half


def share_interval(right: Bool[Tensor, "judged"], independent: int | None = None) -> Interval:
    """The share that is right, with Wilson's interval; where nothing is judged it may be anything.

    Where several judged answers go together, `independent` says how many do not: the interval is as wide as theirs.
    """
    if len(right) == 0:
        return Interval(0.0, 0.0, 1.0)
    share = float(right.double().mean())
    total = np.array([float(len(right) if independent is None else independent)])
    low, high = wilson(share * total, total)
    return Interval(share, float(low[0]), float(high[0]))


def mean_interval(values: Float[np.ndarray, "value"]) -> Interval:
    """The mean of independent values with Student's interval; NaN are left out.

    Fewer than two values, or values that are all equal, say nothing about how they vary: the bounds are NaN then.

    >>> [round(bound, 2) for bound in vars(mean_interval(np.array([1.0, 2.0, 3.0]))).values()]
    [2.0, -0.48, 4.48]
    """
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return Interval(np.nan, np.nan, np.nan)
    mean = float(known.mean())
    if len(known) < 2 or np.ptp(known) == 0:
        return Interval(mean, np.nan, np.nan)
    half = float(stdtrit(len(known) - 1, (1 + CONFIDENCE) / 2) * known.std(ddof=1) / np.sqrt(len(known)))
    return Interval(mean, mean - half, mean + half)


def say_p(p: float) -> str:
    """A p-value as a report writes it.

    >>> say_p(0.00005), say_p(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
