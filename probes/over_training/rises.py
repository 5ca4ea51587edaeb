"""When does a curve over training rise? A test that random walks fail, and a window that no monotone scale can move.

A walk that goes up as easily as down often ends far from where it began. So the null of a rise is the same curve with
the signs of its changes drawn anew: a rise is sure where fewer than 5 in 100 of these get as far up. A single jump
could as well have been one down: in one run it is no sure rise, in several it is.

Scores have no natural scale. If p rises, so does p to the power of 8, and half of the way up is at other steps: such
numbers say nothing about what comes first. The window of a rise goes by order alone: it *begins* after the last
snapshot up to which the scores have no clear tendency upwards (Kendall's tau at most 1/2, which noise rarely exceeds
and a steady rise always does), and *ends* at the first snapshot from which on they have none. One process, whatever
scale it is read on, has one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from probes.stats import ALPHA

FLIPS = 4999
CLEAR = 0.5  # Kendall's tau of a clear tendency
NEGLIGIBLE = 0.01  # of a curve's largest value

Scores = Float[np.ndarray, "snapshot"]
Steps = Int[np.ndarray, "snapshot"]


@dataclass(frozen=True)
class Rise:
    """Between which snapshots a curve rises, and how often a random walk of such changes gets as far up."""

    begin: int  # the last step up to which there is no clear tendency upwards
    end: int  # the first step from which on there is none
    p: float

    @property
    def sure(self) -> bool:
        return self.p <= ALPHA


def find_rise(steps: Steps, scores: Scores, floor: float | None = None, seed: int = 0, flips: int = FLIPS) -> Rise:
    """The rise of one curve in one run; what is below the floor has not begun to rise."""
    begin, end = window(scores if floor is None else np.maximum(scores, floor))
    return Rise(int(steps[begin]), int(steps[end]), rise_p([scores], [floor], seed, flips))


def rise_p(curves: Sequence[Scores], floors: Sequence[float | None], seed: int = 0, flips: int = FLIPS) -> float:
    """How often curves with the same changes up or down at random, each run by itself, rise as far in sum."""
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


def window(scores: Scores) -> tuple[int, int]:
    """Indices of the snapshots between which scores rise: from the end of the start to the start of the end."""
    middle = change_point(scores)
    starts = [last for last in range(middle) if tendency(scores[: last + 1]) <= CLEAR]
    ends = [first for first in range(middle, len(scores)) if tendency(scores[first:]) <= CLEAR]
    return max(starts), min(ends)


def change_point(scores: Scores) -> int:
    """The first snapshot of the upper part, by ranks (Pettitt, 1979); at least one snapshot is on either side."""
    signs = np.sign(np.subtract.outer(scores, scores))
    apart = [signs[split:, :split].sum() for split in range(1, len(scores))]
    return 1 + int(np.argmax(apart))


def tendency(scores: Scores) -> float:
    """Share of the pairs of snapshots of which the later is higher, less the share of which it is lower (Kendall).

    >>> tendency(np.array([1.0, 4.0, 2.0, 3.0])).__round__(2), tendency(np.array([5.0]))
    (0.33, 0.0)
    """
    later, earlier = np.tril_indices(len(scores), -1)
    return float(np.sign(scores[later] - scores[earlier]).mean()) if len(later) else 0.0
