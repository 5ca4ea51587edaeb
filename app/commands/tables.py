"""`countlens tables`"""

import json
from pathlib import Path

from rich.console import Console

from app.commands.tables_text import show
from models.atomic import write_text
from models.errors import CountLensError, unknown
from models.find import SHIPPED, named_counters, shipped_hint
from training.paper.agreement import SUCCESS
from training.paper.comparison import Comparison, compare
from training.paper.differences import FILE, Difference, read_differences
from training.paper.score_table import SCORES, ScoreRow, merge_scores, read_scores, score_of_run
from training.paper.summary import summary_frame
from training.paper.tables import PAPER_TABLES, STATISTICS

PIPED_WIDTH = 100  # columns, if the output is no terminal


def print_tables(
    scores: tuple[Path, ...], runs: Path | None, tables: tuple[str, ...], csv: str | None, as_json: bool
) -> None:
    """Prints the paper's tables beside ours, as text, CSV or JSON."""
    if csv is not None and as_json:
        raise CountLensError("--csv and --json are two forms of the same numbers: give one of them")
    for name in tables:
        if name not in PAPER_TABLES:
            raise unknown("table", name, PAPER_TABLES)
    rows, differences = gather(scores, runs)
    comparison = compare(rows, differences, tables or PAPER_TABLES)
    if csv == "-":
        print(comparison.to_frame().to_csv(index=False), end="")
    elif csv is not None:
        write_text(Path(csv), comparison.to_frame().to_csv(index=False))
        print(f"wrote {csv}")
    elif as_json:
        print(json.dumps(as_object(comparison), indent=2))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = PIPED_WIDTH
        show(comparison, console)


def gather(scores: tuple[Path, ...], runs: Path | None) -> tuple[list[ScoreRow], list[Difference]]:
    """The scores in these tables and runs, and the reasons for differences in the same folders."""
    if not scores and runs is None:
        scores = (SHIPPED / SCORES,)
        if not SHIPPED.is_dir():
            raise CountLensError(f"{shipped_hint()}: give --scores FOLDER/{SCORES}, or --runs")
    tables = [read_scores(path) for path in scores]
    folders = [path.parent for path in scores]
    if runs is not None:
        tables.append(finished_runs(runs))
        folders.append(runs)
    return merge_scores(*tables), [reason for folder in folders for reason in read_differences(folder / FILE)]


def finished_runs(folder: Path) -> list[ScoreRow]:
    """The scores of every finished run below a folder."""
    from training.run.folder import RunFolder  # needs torch; a score table does not

    if not folder.is_dir():
        raise CountLensError(f"{folder} is no folder")
    runs = {name: RunFolder(path.parent) for name, path in named_counters((folder,))}
    rows = [score_of_run(run, name) for name, run in runs.items() if run.finished]
    if not rows:
        raise CountLensError(f"no finished run below {folder}: train some, or read a score table with --scores")
    return rows


def as_object(comparison: Comparison) -> dict[str, object]:
    """The comparison as JSON values: shares over all tables, and a record for each side of each cell."""
    overall = {
        statistic: {side: share._asdict() for side, share in vars(comparison.shares(statistic)).items()}
        for statistic in STATISTICS
    }
    records = json.loads(comparison.to_frame().to_json(orient="records"))
    closeness = json.loads(summary_frame(comparison).to_json(orient="records"))
    return {"success": SUCCESS, "agreement": overall, "closeness": closeness, "cells": records}
