"""How close we are to the paper, per table and over all tables, as `countlens tables` and the Zoo page show it.

A table of best seeds that has a sister table of medians gets a yardstick: how close the paper's own medians are to its
best seeds. Both are of the same five runs, so distances of that size are a matter of seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pandas as pd

from training.paper.agreement import Side
from training.paper.closeness import Closeness, closeness
from training.paper.comparison import CHECKPOINTS, SIDES, Checkpoint, ComparedCell, Comparison, with_paper_medians
from training.paper.tables import PAPER_TABLES, STATISTICS

PAPER_MEDIANS = "the paper's medians"


@dataclass(frozen=True)
class SummaryLine:
    """How close we are on one side of one table, or of all tables together."""

    table: str  # key of PAPER_TABLES, or `all, best seed` and `all, median`; with `PAPER_MEDIANS`: how close those are
    side: Side
    checkpoint: Checkpoint
    closeness: Closeness


def summarise(comparison: Comparison) -> Iterator[SummaryLine]:
    """Yields the lines of every table for which we trained something, then those of all cells, each counted once."""
    for table in comparison.tables:
        yield from _lines(table.name, table.cells)
        if f"{table.name}_median" in PAPER_TABLES and any(cell.ours is not None for cell in table.cells):
            yield from _lines(f"{table.name}, {PAPER_MEDIANS}", with_paper_medians(table).cells, ("best",))
    for statistic in STATISTICS:
        name = "all, best seed" if statistic == "best" else "all, median"
        yield from _lines(name, [cell for cell in comparison.cells if cell.paper.statistic == statistic])


def _lines(
    name: str, cells: Sequence[ComparedCell], checkpoints: Sequence[Checkpoint] = CHECKPOINTS
) -> Iterator[SummaryLine]:
    if any(cell.ours is not None for cell in cells):
        for side, checkpoint in product(reversed(SIDES), checkpoints):
            yield SummaryLine(name, side, checkpoint, closeness(cells, side, checkpoint))


def summary_frame(comparison: Comparison) -> pd.DataFrame:
    """The summary as a frame, with one line per table and side."""
    return pd.DataFrame(
        [
            {"table": line.table, "side": line.side, "checkpoint": line.checkpoint, **vars(line.closeness)}
            for line in summarise(comparison)
        ]
    )
