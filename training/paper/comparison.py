"""The paper's tables compared with our runs, cell by cell.

A cell has an IND side and an OOD side. On each side the paper and we both succeed, both fail, or differ; a cell agrees
if both of its sides do. A table of best seeds is compared with our best seed, a table of medians with our median.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd

from training.paper.agreement import Accuracy, Agreement, Side, agreement
from training.paper.differences import Difference, reason_for
from training.paper.score_table import ScoreRow
from training.paper.tables import PAPER_POLICY, PAPER_TABLES, Experiment, PaperCell, Statistic, paper_cells, printed

FAR = 25.0  # points of accuracy: a cell that is off by more asks for a reason, also on the same side of success
SIDES: tuple[Side, ...] = get_args(Side)
Checkpoint = Literal["best", "last"]  # the paper reports the best of a run; the last is free of that choice
CHECKPOINTS: tuple[Checkpoint, ...] = get_args(Checkpoint)


@dataclass(frozen=True)
class Ours:
    """Our runs for a cell. If several sizes or presets fit the cell, those of the one with the best seed."""

    name: str  # of the best seed
    preset: str
    width: int
    heads: int | None
    scores: dict[Checkpoint, tuple[Accuracy, ...]]  # of every seed

    @property
    def seeds(self) -> int:
        return len(self.scores["best"])

    def of(self, statistic: Statistic, checkpoint: Checkpoint = "best") -> Accuracy:
        """The accuracy to compare with the paper's: of the seed with the best mean, or the median of each side."""
        scores = self.scores[checkpoint]
        if statistic == "best":
            return max(scores, key=sum)
        return Accuracy(median(score.ind for score in scores), median(score.ood for score in scores))


@dataclass(frozen=True)
class ComparedCell:
    """A cell of the paper's tables and our runs for it."""

    paper: PaperCell
    ours: Ours | None  # None if we trained nothing for it
    reason: str | None = None  # why it differs, if that is known

    @property
    def numbers(self) -> Accuracy | None:
        """Our accuracy at the best checkpoints, by the table's statistic; None if we trained nothing."""
        return self.numbers_of("best")

    def numbers_of(self, checkpoint: Checkpoint) -> Accuracy | None:
        """Our accuracy at the best or the last checkpoints, by the table's statistic; None if we trained nothing."""
        return None if self.ours is None else self.ours.of(self.paper.statistic, checkpoint)

    @property
    def ind(self) -> Agreement | None:
        return None if self.numbers is None else agreement(self.numbers.ind, self.paper.ind)

    @property
    def ood(self) -> Agreement | None:
        return None if self.numbers is None else agreement(self.numbers.ood, self.paper.ood)

    @property
    def differs(self) -> bool:
        return "differ" in (self.ind, self.ood)

    @property
    def odd_sides(self) -> tuple[Side, ...]:
        """The sides that ask for a reason: not on the paper's side of success, or far from its number."""
        if self.numbers is None:
            return ()
        return tuple(side for side in SIDES if getattr(self, side) == "differ" or abs(self.points_off(side)) > FAR)

    def by_seed(self, side: Side) -> tuple[float, ...]:
        """The accuracy of each of our seeds, at its best checkpoint, from the highest to the lowest."""
        scores = self.ours.scores["best"] if self.ours else ()
        return tuple(sorted((getattr(score, side) for score in scores), reverse=True))

    def points_off(self, side: Side) -> float:
        """Our accuracy minus the paper's, in points; NaN if we trained nothing."""
        return getattr(self.numbers, side, math.nan) - float(getattr(self.paper, side))


class Share(NamedTuple):
    """How many cells agree with the paper, and how many we trained."""

    agree: int
    trained: int


@dataclass(frozen=True)
class Shares:
    """Agreement over many cells: on the IND side, on the OOD side, and on both at once."""

    ind: Share
    ood: Share
    cells: Share


@dataclass(frozen=True)
class ComparedTable:
    """A table of the paper compared with our runs."""

    name: str  # key of PAPER_TABLES
    cells: tuple[ComparedCell, ...]

    @property
    def shares(self) -> Shares:
        return _shares(self.cells)


@dataclass(frozen=True)
class Comparison:
    """Several tables of the paper compared with our runs."""

    tables: tuple[ComparedTable, ...]

    @property
    def cells(self) -> tuple[ComparedCell, ...]:
        """Every cell once; of a cell that several tables repeat, the first."""
        by_key: dict[Any, ComparedCell] = {}
        for cell in (cell for table in self.tables for cell in table.cells):
            paper = cell.paper
            by_key.setdefault((paper.experiment, paper.width, paper.heads, paper.statistic), cell)
        return tuple(by_key.values())

    def shares(self, statistic: Statistic | None = None) -> Shares:
        """Agreement over all tables, or over those of one statistic; every cell is counted once."""
        return _shares([cell for cell in self.cells if statistic in (None, cell.paper.statistic)])

    @property
    def odd_cells(self) -> tuple[ComparedCell, ...]:
        """Cells that ask for a reason."""
        return tuple(cell for cell in self.cells if cell.odd_sides)

    def to_frame(self) -> pd.DataFrame:
        """One line per table, cell and side; `ours` is empty where nothing was trained."""
        lines = [line for table in self.tables for cell in table.cells for line in _lines(cell)]
        frame = pd.DataFrame(lines, columns=FRAME_COLUMNS)
        return frame.astype({"width": "Int64", "heads": "Int64"})  # whole numbers, though some are missing


def compare(
    rows: Iterable[ScoreRow], differences: Sequence[Difference] = (), tables: Iterable[str] = PAPER_TABLES
) -> Comparison:
    """Compares the paper's tables with the runs of a score table. Runs with another position policy are left out."""
    runs: defaultdict[Experiment, list[ScoreRow]] = defaultdict(list)
    for row in rows:
        if row.policy == PAPER_POLICY:
            runs[row.experiment].append(row)
    return Comparison(
        tuple(
            ComparedTable(
                name,
                tuple(_compare_cell(cell, runs.get(cell.experiment, ()), differences) for cell in paper_cells(name)),
            )
            for name in tables
        )
    )


def with_paper_medians(table: ComparedTable) -> ComparedTable:
    """The table with the paper's own medians in place of our runs: how far apart two numbers of the same seeds are."""
    medians = {
        (cell.experiment, cell.width, cell.heads): Accuracy(cell.ind, cell.ood)
        for name in PAPER_TABLES
        for cell in paper_cells(name)
        if cell.statistic == "median"
    }

    def median_of(paper: PaperCell) -> Ours | None:
        found = medians.get((paper.experiment, paper.width, paper.heads))
        scores: dict[Checkpoint, tuple[Accuracy, ...]] = {"best": (found,), "last": (found,)} if found else {}
        return Ours("the paper's median", "paper", paper.width or 0, paper.heads, scores) if found else None

    return replace(table, cells=tuple(ComparedCell(cell.paper, median_of(cell.paper)) for cell in table.cells))


def _compare_cell(paper: PaperCell, runs: Iterable[ScoreRow], differences: Sequence[Difference]) -> ComparedCell:
    cell = ComparedCell(
        paper, _select_ours([row for row in runs if paper.is_about(row.experiment, row.width, row.heads)])
    )
    return replace(cell, reason=reason_for(paper, differences)) if cell.odd_sides else cell


def _select_ours(rows: list[ScoreRow]) -> Ours | None:
    """Our runs for a cell, from all that fit it; None if none does.

    A median over different sizes would mean nothing, so the runs of one size are chosen: those with the best seed.
    """
    by_cell = groupby(sorted(rows, key=lambda row: row.cell), key=lambda row: row.cell)
    variants = [list(seeds) for _, seeds in by_cell]
    if not variants:
        return None
    seeds = max(variants, key=lambda variant: max(row.rank for row in variant))
    best = max(seeds, key=lambda row: row.rank)
    return Ours(
        best.name,
        best.preset,
        best.width,
        best.heads,
        {
            "best": tuple(Accuracy(row.ind, row.ood) for row in seeds),
            "last": tuple(Accuracy(row.last_ind, row.last_ood) for row in seeds),
        },
    )


def _shares(cells: Iterable[ComparedCell]) -> Shares:
    trained = [cell for cell in cells if cell.ours is not None]
    return Shares(
        Share(sum(cell.ind != "differ" for cell in trained), len(trained)),
        Share(sum(cell.ood != "differ" for cell in trained), len(trained)),
        Share(sum(not cell.differs for cell in trained), len(trained)),
    )


FRAME_COLUMNS = [
    *("table", "task", "bos", "architecture", "layers", "width", "heads", "causal", "train_length", "ood_length"),
    *("statistic", "side", "paper", "ours", "agreement", "seeds", "by_seed", "preset", "run", "reason"),
]


def _lines(cell: ComparedCell) -> list[dict[str, Any]]:
    paper, ours, numbers = cell.paper, cell.ours, cell.numbers
    shared = {name: getattr(paper, name) for name in FRAME_COLUMNS[:11]} | {
        "width": ours.width if ours else paper.width,
        "heads": ours.heads if ours else paper.heads,
        "seeds": ours.seeds if ours else 0,
        "preset": ours.preset if ours else None,
        "run": ours.name if ours else None,
    }
    lines = []
    outcomes: dict[Side, Agreement | None] = {"ind": cell.ind, "ood": cell.ood}
    for side, outcome in outcomes.items():
        lines.append(
            shared
            | {"side": side, "paper": getattr(paper, side), "ours": getattr(numbers, side, None), "agreement": outcome}
            | {"by_seed": " ".join(printed(score) for score in cell.by_seed(side)) or None}
            | {"reason": cell.reason if side in cell.odd_sides else None}
        )
    return lines
