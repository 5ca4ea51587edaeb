"""`countlens probe` and `countlens report`"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from app.escape import say
from app.report.collect import Skipped, collect, collect_cells
from models.border import AS_FLAG, convert
from models.errors import CountLensError, unknown
from models.ranges import Seed
from probes.cells import find_cell
from probes.over_seeds import over_seeds
from probes.registry import PROBES, load_subject
from probes.result import Result


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and BLAS inside the block: with more, small tensors are slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def print_probes() -> None:
    """Prints the name and the question of every probe."""
    width = max(map(len, PROBES))
    for name, probe in PROBES.items():
        print(f"{name:{width}}  {probe.question}")


def run_probe(name: str, checkpoint: str, form: str, seed: int) -> None:
    """Prints what a probe finds in a counter: its verdict, or everything as JSON or CSV."""
    if name not in PROBES:
        raise unknown("probe", name, PROBES)
    with one_thread():
        result = PROBES[name].run(load_subject(checkpoint), seed)
    print_result(result, form)


def run_probe_on_seeds(
    name: str, cell: str, seeds: tuple[str, ...], runs: Path | None, form: str, seed: int, progress: bool
) -> None:
    """Prints what a probe finds in the seeds of a cell."""
    if name not in PROBES:
        raise unknown("probe", name, PROBES)
    with one_thread():
        result = over_seeds(name, find_cell(cell, parse_seeds(seeds), runs), seed, progress)
    if form == "text":
        for verdict in result.seeds:
            label = "skipped" if verdict.headline is None else verdict.headline.label
            say(f"seed {verdict.seed}: {label}: {verdict.sentence}")
    print_result(result, form)


def parse_seeds(words: tuple[str, ...]) -> tuple[int, ...] | None:
    """The seeds as numbers; None for all.

    >>> parse_seeds(("0", "12")), parse_seeds(("all",))
    ((0, 12), None)
    """
    if words == ("all",):
        return None
    try:
        return tuple(convert("seeds", word, Seed, AS_FLAG, as_text=True) for word in words)
    except CountLensError as error:
        raise CountLensError(f"{error}; give numbers, as --seeds 0 1 2, or --seeds all") from error


def print_result(result: Result, form: str) -> None:
    """Prints a result as JSON or CSV, or its verdict as text."""
    if form == "json":
        print(json.dumps(result.to_dict(), allow_nan=False))
    elif form == "csv":
        sys.stdout.write(result.to_frame().to_csv(index=False, float_format="%.9g"))
    else:
        say(result.verdict.sentence)
        print(f"What would change this: {result.verdict.would_change}")


def run_report(
    checkpoints: tuple[str, ...],
    out: Path,
    probes: tuple[str, ...],
    seed: int,
    seeds: tuple[str, ...],
    runs: Path | None,
    progress: bool,
) -> None:
    """Writes a report, and prints its verdicts and its folder."""
    from app.report.write import write_report

    if out.exists() and not out.is_dir():
        raise CountLensError(f"--out {out} is a file: name a folder")
    with one_thread():
        if seeds:
            cells = [find_cell(name, parse_seeds(seeds), runs) for name in checkpoints]
            report = collect_cells(cells, probes, seed, progress)
        else:
            report = collect(checkpoints, probes, seed, progress)
    files = write_report(report, out)
    for name, by_counter in report.results.items():
        print(PROBES[name].title)
        for counter, result in by_counter.items():
            outcome = f"skipped: {result.reason}" if isinstance(result, Skipped) else result.verdict.sentence
            say(f"  {counter}: {outcome}")
    print(f"wrote {', '.join(path.name for path in files)} to {out}")
