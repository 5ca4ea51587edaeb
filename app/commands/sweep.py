"""`countlens sweep`"""

import fnmatch
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.axes import make_cell
from app.commands.live_table import scores_of, watch
from app.escape import say
from app.options import SweepOptions
from models.errors import CountLensError
from training.config import EngineOptions
from training.paper.score_table import read_scores, score_of_run, write_scores
from training.run.interrupt import interrupted_by_sigterm
from training.sweep.engine import sweep, train_run
from training.sweep.estimate import estimate_sweep
from training.sweep.grid import expand, read_grid
from training.sweep.local_engine import default_workers
from training.sweep.manifest import Manifest, last_line, status_of
from training.sweep.units import duration


def run_command(grid: Path | None, axes: Mapping[str, Any], options: SweepOptions) -> None:
    """Does what the options say with the runs of a grid file, a manifest or axes."""
    manifest = open_sweep(grid, make_cell(axes), options.out)
    selection = select(manifest, options.only, options.skip_scored)
    if options.status:
        print_status(selection)
    elif options.dry_run:
        print_estimate(selection, options.engine_options.workers, options.gpu, options.price_per_core_hour)
    elif options.index is not None:
        run_index(manifest, options.index)
    else:
        run_sweep(manifest, selection, options.engine, options.engine_options, options.quiet)


def open_sweep(grid: Path | None, cell: dict[str, Any], out: Path) -> Manifest:
    """The manifest in a .jsonl file, or a new one below `out` from a grid file or a cell."""
    if grid is None:
        if not cell:
            raise CountLensError(
                "what to sweep over? Give a grid file, or axes such as --task mod10 --architecture ape"
            )
        return Manifest(out / "sweep.jsonl", tuple(expand([cell])))
    if cell:
        flag = next(iter(cell)).replace("_", "-")
        raise CountLensError(f"{grid} and axes such as --{flag} exclude each other: give one")
    if grid.suffix == ".jsonl":
        return Manifest.read(grid)
    return Manifest(out / f"{grid.stem}.jsonl", tuple(read_grid(grid)))


def run_index(manifest: Manifest, index: int) -> None:
    """Trains the run on one line of the manifest, in this process."""
    if not 0 <= index < len(manifest.runs):
        raise CountLensError(f"--index {index}: {manifest.path} has lines 0 to {len(manifest.runs) - 1}")
    manifest.check()
    manifest.write()
    run = manifest.runs[index]
    say(f"{index}: {run.name}")
    with interrupted_by_sigterm():
        outcome = train_run(manifest.folder(run).path, run.config, progress=sys.stderr.isatty())
    status = status_of(manifest.folder(run), run.config)
    details = scores_of(status) if outcome.error is None else f": {last_line(outcome.error)}"
    say(f"{outcome.kind}{details}")
    if outcome.kind != "finished":
        sys.exit(1)


def print_estimate(manifest: Manifest, workers: int | None, gpu: str, price: float | None) -> None:
    """Prints what the unfinished runs would cost, here and on a GPU."""
    left = manifest.unfinished()
    estimate = estimate_sweep(
        [run.config for run in left],
        names=[run.name for run in left],
        workers=workers or default_workers(),
        gpu=gpu,
        price_per_core_hour=price,
        already_finished=len(manifest.runs) - len(left),
        progress=sys.stderr.isatty(),
    )
    print("\n".join([*estimate.table(), *estimate.lines()]))


def run_sweep(manifest: Manifest, selection: Manifest, engine: str, options: EngineOptions, quiet: bool) -> None:
    """Trains the selected runs that are unfinished, with a live table, and prints a summary.

    Exit code 1 if a run is not finished.
    """
    manifest.check()
    manifest.write()
    start = time.perf_counter()
    board = watch(sweep(selection, engine, options), selection, quiet)
    print_summary(manifest, selection, board.failed, time.perf_counter() - start)


def select(manifest: Manifest, only: str | None, skip_scored: Path | None) -> Manifest:
    """The manifest with only the runs whose name fits a pattern such as `mod10/*` and that a score table lacks."""
    runs = manifest.runs
    if only is not None:
        runs = tuple(run for run in runs if fnmatch.fnmatch(run.name, only))
        if not runs:
            raise CountLensError(f"--only {only!r} fits none of the runs, such as {manifest.runs[0].name}")
    if skip_scored is not None:
        scored = {(row.name, row.recipe) for row in read_scores(skip_scored)}
        runs = tuple(run for run in runs if (run.name, run.config.recipe) not in scored)
        if not runs:
            raise CountLensError(f"{skip_scored} has the scores of all these runs: nothing is left to train")
    return replace(manifest, runs=runs)


def print_summary(manifest: Manifest, selection: Manifest, errors: Mapping[str, str], seconds: float) -> None:
    """Prints how many runs finished, which failed and why, and where the scores are.

    `errors` are those of this sweep; if the disk was full, they are not in the run folders.
    """
    failed = {
        run.name: errors.get(run.name) or status.error or "not finished"
        for run, status in selection.statuses()
        if status.state != "finished"
    }
    print(
        f"{len(selection.runs) - len(failed)} of {len(selection.runs)} runs finished, {len(failed)} failed, "
        f"in {duration(seconds)}"
    )
    for name, error in failed.items():
        say(f"  {name}: {error}")
    if failed:
        print(f"  the whole error is in RUN/error.txt below {manifest.path.parent}; the same command tries them again")
    finished = [run for run, status in manifest.statuses() if status.state == "finished"]
    if finished:
        scores = manifest.path.with_suffix(".scores.csv")
        write_scores(scores, [score_of_run(manifest.folder(run), run.name) for run in finished])
        print(f"scores: {scores}; beside the paper's: countlens tables --scores {scores}")
    if failed:
        sys.exit(1)


def print_status(manifest: Manifest) -> None:
    """Prints the state of every run, as the run folders have it, even while another process trains."""
    for index, (run, status) in enumerate(manifest.statuses()):
        details = f": {status.error}" if status.state == "failed" else scores_of(status)
        say(f"{index:4} {status.state:8} {status.step:>6}/{status.steps:<6} {run.name}{details}")
