"""How near our numbers are to the paper's, over many cells of its tables.

Being on the same side of success says little where nearly every cell fails: whoever answers "fails" everywhere is right
in most of them. So the differences themselves are here, the order of architectures within a row of a table, and
Cohen's kappa, which is 0 for whoever answers the same everywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pandas as pd

from training.paper.agreement import succeeds
from training.paper.comparison import Checkpoint, ComparedCell

Side = Literal["ind", "ood"]
LEAST_ARCHITECTURES = 3  # of a row, for its order to say something
LEAST_SEEDS = 3  # of a cell, for its range to say something


class OursAndPaper(NamedTuple):
    """The accuracies of one cell on one side, in percent."""

    ours: float
    paper: float


@dataclass(frozen=True)
class Closeness:
    """How near we are over some cells, on one side (IND or OOD). Shares are of the cells that we trained."""

    trained: int
    cells: int
    mean_difference: float  # absolute, in points; NaN where nothing is trained, as all that follows
    median_difference: float
    within_5: float  # share of cells that differ by no more points than that
    within_10: float
    rank_correlation: float  # Spearman's, over the architectures of a row; the mean over rows
    same_side: float  # share of cells that succeed where the paper's do, and fail where those fail
    base_rate: float  # the same for whoever gives the paper's more frequent answer everywhere
    kappa: float  # Cohen's: how far `same_side` is above chance
    in_range: float  # share of cells with several seeds in whose range the paper's value lies


def closeness(cells: Sequence[ComparedCell], side: Side, checkpoint: Checkpoint = "best") -> Closeness:
    """How near the cells that we trained are to the paper's."""
    trained = [cell for cell in cells if cell.ours is not None]
    pairs = [_pair(cell, side, checkpoint) for cell in trained]
    differences = pd.Series([abs(ours - paper) for ours, paper in pairs], dtype=float)
    ours, papers = ([succeeds(getattr(pair, who)) for pair in pairs] for who in ("ours", "paper"))
    same = _mean(mine == theirs for mine, theirs in zip(ours, papers, strict=True))
    ranges = [_range(cell, side, checkpoint) for cell in trained if cell.ours and cell.ours.seeds >= LEAST_SEEDS]
    return Closeness(
        len(trained),
        len(cells),
        float(differences.mean()),
        float(differences.median()),
        _mean(differences <= 5),
        _mean(differences <= 10),
        _mean(_row_correlations(trained, side, checkpoint)),
        same,
        max(_mean(papers), 1 - _mean(papers)),
        _kappa(same, _mean(ours), _mean(papers)),
        _mean(ranges),
    )


def _pair(cell: ComparedCell, side: Side, checkpoint: Checkpoint) -> OursAndPaper:
    numbers = cell.numbers_of(checkpoint)
    assert numbers is not None
    return OursAndPaper(getattr(numbers, side), getattr(cell.paper, side))


def _range(cell: ComparedCell, side: Side, checkpoint: Checkpoint) -> bool:
    """Whether the paper's value lies among our seeds'. The paper prints one digit."""
    assert cell.ours is not None
    scores = [round(getattr(seed, side), 1) for seed in cell.ours.scores[checkpoint]]
    return min(scores) <= getattr(cell.paper, side) <= max(scores)


def _row_correlations(trained: Iterable[ComparedCell], side: Side, checkpoint: Checkpoint) -> list[float]:
    """Spearman's correlation for each row of a table that has several architectures, not all alike."""
    rows: dict[object, list[OursAndPaper]] = {}
    for cell in trained:
        paper = cell.paper
        row = paper.experiment._replace(architecture=""), paper.width, paper.heads, paper.statistic
        rows.setdefault(row, []).append(_pair(cell, side, checkpoint))
    ranks = [pd.DataFrame(pairs).rank() for pairs in rows.values() if len(pairs) >= LEAST_ARCHITECTURES]
    return [float(rank.ours.corr(rank.paper)) for rank in ranks if (rank.nunique() > 1).all()]


def _kappa(same: float, ours: float, papers: float) -> float:
    """Cohen's kappa, from the share of equal answers and how often each side says "succeeds"."""
    chance = ours * papers + (1 - ours) * (1 - papers)
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")


def _mean(values: Iterable[Any]) -> float:
    return float(pd.Series(list(values), dtype=float).mean())
