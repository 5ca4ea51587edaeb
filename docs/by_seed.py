"""Prints docs/mechanism.md's table of verdicts by seed, and measures what is missing from docs/by_seed.csv first.

    python docs/by_seed.py                                      the table
    python docs/by_seed.py runs/mod10/ape-2L runs/mod10/rnn-1L  measures every seed in these folders, then the table

A folder holds the runs of one cell, seed by seed, as `countlens sweep` leaves them. Each run's last step is asked, so
that no step is chosen; runs that have not ended are left out.
"""

import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probes.cells import find_cell
from probes.mechanism.grades import GRADES
from probes.mechanism.memory_verdict import MemoryMechanisms
from probes.mechanism.verdict import Mechanisms
from probes.registry import PROBES, load_subject
from probes.result import NotApplicable, Result
from probes.stats import mean_interval
from training.run.folder import RunFolder

TABLE = Path(__file__).with_name("by_seed.csv")
COLUMNS = ("cell", "seed", "probe", "label", "grade", "value", "low", "high")
PROBE_NAMES = ("mechanism", "anchor")


def grade_of(result: Result) -> str:
    """The grade of what a result says, as the verdict words it."""
    if isinstance(result, Mechanisms):
        return result.winner.grade if result.winner is not None else GRADES[0]
    if isinstance(result, MemoryMechanisms):
        return result.supported[0].grade if result.supported else GRADES[0]
    return str(getattr(result, "grade", ""))


def measure(folder: str, known: set[tuple[str, str, str]]) -> None:
    """Asks every seed of a folder that is not in the table yet, and adds it to what is known."""
    cell = find_cell(folder)
    name = "/".join(Path(cell.name).parts[-2:])
    for seed, path in cell.files.items():
        run = RunFolder(path.parent)
        for probe in PROBE_NAMES:
            if (name, str(seed), probe) in known or not run.finished:
                continue
            try:
                result = PROBES[probe].run(load_subject(run.last), 0)
            except NotApplicable:
                continue
            headline = result.headline
            numbers = (f"{value:.4f}" for value in (headline.value, headline.low, headline.high))
            line = (name, seed, probe, headline.label, grade_of(result), *numbers)
            with TABLE.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(line)
            known.add((name, str(seed), probe))


def read_table() -> list[dict[str, Any]]:
    if not TABLE.is_file():
        TABLE.write_text(",".join(COLUMNS) + "\n")
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def table_text(rows: list[dict[str, Any]]) -> str:
    """One line per cell and probe: how many seeds say what, and the mean of their numbers with an interval."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["cell"], row["probe"]].append(row)
    lines = ["| cell | probe | seeds | verdicts | number, mean over seeds |", "|---|---|---|---|---|"]
    for (cell, probe), seeds in sorted(cells.items()):
        labels = Counter(row["label"] + (f", {row['grade']}" if row["grade"] != "none" else "") for row in seeds)
        verdicts = "; ".join(f"{label}: {number}" for label, number in labels.most_common())
        mean = mean_interval(np.array([float(row["value"]) for row in seeds]))
        low, high = (100 * min(max(bound, -1.0), 1.0) for bound in (mean.low, mean.high))
        interval = f" ({low:.0f} to {high:.0f})" if np.isfinite(low) else ""
        lines.append(f"| `{cell}` | {probe} | {len(seeds)} | {verdicts} | {100 * mean.value:.0f} %{interval} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    known = {(row["cell"], row["seed"], row["probe"]) for row in read_table()}
    for folder in sys.argv[1:]:
        measure(folder, known)
    print(table_text(read_table()))


if __name__ == "__main__":
    main()
