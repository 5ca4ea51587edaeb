"""How close we are to the paper, per table and over all tables, as `countlens tables` and the Zoo page show it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from training.paper.agreement import Side
from training.paper.closeness import Closeness, closeness
from training.paper.comparison import Checkpoint, ComparedCell, Comparison
from training.paper.tables import STATISTICS

SHOWN: tuple[tuple[Side, Checkpoint], ...] = (("ood", "best"), ("ood", "last"), ("ind", "best"))


@dataclass(frozen=True)
class SummaryLine:
    """How close we are on one side of one table, or of all tables together."""

    table: str  # key of PAPER_TABLES, or `all, best seed` and `all, median`
    side: Side
    checkpoint: Checkpoint
    closeness: Closeness


def summarise(comparison: Comparison) -> Iterator[SummaryLine]:
    """Yields the lines of every table for which we trained something, then those of all cells, each counted once."""
    groups: dict[str, Sequence[ComparedCell]] = {table.name: table.cells for table in comparison.tables}
    for statistic in STATISTICS:
        name = "all, best seed" if statistic == "best" else "all, median"
        groups[name] = [cell for cell in comparison.cells if cell.paper.statistic == statistic]
    for name, cells in groups.items():
        if any(cell.ours is not None for cell in cells):
            for side, checkpoint in SHOWN:
                yield SummaryLine(name, side, checkpoint, closeness(cells, side, checkpoint))


def summary_frame(comparison: Comparison) -> pd.DataFrame:
    """The summary as a frame, with one line per table and side."""
    return pd.DataFrame(
        [
            {"table": line.table, "side": line.side, "checkpoint": line.checkpoint, **vars(line.closeness)}
            for line in summarise(comparison)
        ]
    )
