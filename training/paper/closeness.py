"""How close our accuracies are to the paper's, over many cells of its tables.

The share of cells that both succeed or both fail says little where nearly every cell fails: the guess "fails" would be
right in most of them. So there are also the differences themselves, the rank correlation of architectures within a row
of a table, and Cohen's kappa, which is 0 for a guess that is the same everywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from training.paper.agreement import Side, succeeds
from training.paper.comparison import Checkpoint, ComparedCell

LEAST_ARCHITECTURES = 3  # a row needs so many for a rank correlation
LEAST_SEEDS = 3  # a cell needs so many for a range


class OursAndPaper(NamedTuple):
    """Our accuracy and the paper's for one side (IND or OOD) of one cell, in percent."""

    ours: float
    paper: float


@dataclass(frozen=True)
class Closeness:
    """How close we are to the paper over some cells, on one side (IND or OOD). Shares are of the trained cells."""

    trained: int
    cells: int
    mean_difference: float  # absolute, in points; this and all below are NaN if nothing is trained
    median_difference: float
    within_5: float  # share of cells that differ by at most 5 points
    within_10: float
    rank_correlation: float  # Spearman's, over the architectures of a row; the mean over rows
    same_side: float  # share of cells in which we and the paper both succeed or both fail
    base_rate: float  # the same for a guess that is always the paper's more frequent outcome
    kappa: float  # Cohen's: how far `same_side` is above chance
    in_range: float  # share of cells with several seeds whose range contains the paper's value


def closeness(cells: Sequence[ComparedCell], side: Side, checkpoint: Checkpoint = "best") -> Closeness:
    """Compares the cells that we trained with the paper's, on one side."""
    trained = [cell for cell in cells if cell.ours is not None]
    pairs = [_pair(cell, side, checkpoint) for cell in trained]
    differences = pd.Series([abs(ours - paper) for ours, paper in pairs], dtype=float)
    ours, papers = ([succeeds(getattr(pair, who)) for pair in pairs] for who in ("ours", "paper"))
    same = _mean(mine == theirs for mine, theirs in zip(ours, papers, strict=True))
    with_range = [cell for cell in trained if cell.ours and cell.ours.seeds >= LEAST_SEEDS]
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
        _mean(_is_in_range(cell, side, checkpoint) for cell in with_range),
    )


def _pair(cell: ComparedCell, side: Side, checkpoint: Checkpoint) -> OursAndPaper:
    numbers = cell.numbers_of(checkpoint)
    assert numbers is not None
    return OursAndPaper(getattr(numbers, side), getattr(cell.paper, side))


def _is_in_range(cell: ComparedCell, side: Side, checkpoint: Checkpoint) -> bool:
    """Whether the paper's value lies within the range of our seeds, rounded to one digit as the paper prints it."""
    assert cell.ours is not None
    scores = [round(getattr(seed, side), 1) for seed in cell.ours.scores[checkpoint]]
    return min(scores) <= getattr(cell.paper, side) <= max(scores)


def _row_correlations(trained: Iterable[ComparedCell], side: Side, checkpoint: Checkpoint) -> list[float]:
    """Spearman's correlation for each table row that has several architectures with different accuracies."""
    rows: dict[object, list[OursAndPaper]] = {}
    for cell in trained:
        paper = cell.paper
        row = paper.experiment._replace(architecture=""), paper.width, paper.heads, paper.statistic
        rows.setdefault(row, []).append(_pair(cell, side, checkpoint))
    ranks = [pd.DataFrame(pairs).rank() for pairs in rows.values() if len(pairs) >= LEAST_ARCHITECTURES]
    return [float(rank.ours.corr(rank.paper)) for rank in ranks if (rank.nunique() > 1).all()]


def _kappa(same: float, ours: float, papers: float) -> float:
    """Cohen's kappa, from the share of equal outcomes and the shares of success of ours and of the paper's."""
    chance = ours * papers + (1 - ours) * (1 - papers)
    return (same - chance) / (1 - chance) if chance < 1 else float("nan")


def _mean(values: Iterable[Any]) -> float:
    return float(pd.Series(list(values), dtype=float).mean())
