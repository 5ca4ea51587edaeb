"""When does a curve over training rise? A test that random walks do not pass, and a window that depends on ranks only.

A random walk often ends far from where it began. So the null of a rise is the same curve with random signs of its
changes: a rise is sure if fewer than 5 in 100 such walks get as high. A single jump could as well have been downwards:
in one run it is no sure rise, in several runs it is.

Scores have no natural scale. If p rises, so does p to the power of 8, but it is half-way up at another step, so that
half-way points say nothing about what comes first. The window of a rise depends on the order of scores only: it
*begins* after the last snapshot up to which the scores have no clear upward tendency (Kendall's tau at most 1/2, which
noise rarely exceeds and a steady rise always does), and *ends* at the first snapshot from which on they have none. So
a process has the same window on every monotone scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from probes.stats import ALPHA

FLIPS = 4999
CLEAR = 0.5  # Kendall's tau above which a tendency is clear
NEGLIGIBLE = 0.01  # share of a curve's largest value

Curve = Float[np.ndarray, "snapshot"]
SnapshotSteps = Int[np.ndarray, "snapshot"]


@dataclass(frozen=True)
class Rise:
    """The steps between which a curve rises, and the p-value of the rise."""

    begin: int  # the last step up to which there is no clear upward tendency
    end: int  # the first step from which on there is none
    p: float

    @property
    def sure(self) -> bool:
        """Whether the rise is significant."""
        return self.p <= ALPHA


def find_rise(
    steps: SnapshotSteps, scores: Curve, floor: float | None = None, seed: int = 0, flips: int = FLIPS
) -> Rise:
    """The rise of one curve in one run; scores below the floor count as the floor."""
    begin, end = window(scores if floor is None else np.maximum(scores, floor))
    return Rise(int(steps[begin]), int(steps[end]), rise_p([scores], [floor], seed, flips))


def rise_p(curves: Sequence[Curve], floors: Sequence[float | None], seed: int = 0, flips: int = FLIPS) -> float:
    """The p-value of rises over runs: how often curves with random signs of their changes rise as far in sum."""
    generator = np.random.default_rng(seed)
    observed, flipped = 0.0, np.zeros(flips)
    for scores, floor in zip(curves, floors, strict=True):
        start = scores[0] if floor is None else max(scores[0], floor)
        rise = max(0.0, scores.max() - start)
        if rise <= NEGLIGIBLE * np.abs(scores).max():
            continue
        changes = np.diff(scores)
        walks = (generator.choice([-1.0, 1.0], size=(flips, len(changes))) * changes).cumsum(1)
        observed += rise
        flipped += np.maximum(walks.max(1), 0)
    if observed == 0:
        return 1.0
    return float((1 + (flipped >= observed * (1 - 1e-9)).sum()) / (1 + flips))


def window(scores: Curve) -> tuple[int, int]:
    """The indices of the snapshots between which scores rise: the last of the flat start, the first of the flat end."""
    middle = change_point(scores)
    starts = [last for last in range(middle) if tendency(scores[: last + 1]) <= CLEAR]
    ends = [first for first in range(middle, len(scores)) if tendency(scores[first:]) <= CLEAR]
    return max(starts), min(ends)


def change_point(scores: Curve) -> int:
    """The index that splits the scores best into a lower and a higher part, by ranks (Pettitt, 1979)."""
    signs = np.sign(np.subtract.outer(scores, scores))
    apart = [signs[split:, :split].sum() for split in range(1, len(scores))]
    return 1 + int(np.argmax(apart))


def tendency(scores: Curve) -> float:
    """The share of pairs of snapshots of which the later is higher, minus the share of which it is lower (Kendall).

    >>> tendency(np.array([1.0, 4.0, 2.0, 3.0])).__round__(2), tendency(np.array([5.0]))
    (0.33, 0.0)
    """
    later, earlier = np.tril_indices(len(scores), -1)
    return float(np.sign(scores[later] - scores[earlier]).mean()) if len(later) else 0.0
