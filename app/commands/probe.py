"""`countlens probe` and `countlens report`"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from app.escape import say
from app.report.collect import Skipped, collect
from models.errors import CountLensError, unknown
from probes.registry import PROBES, load_subject


@contextmanager
def one_thread() -> Iterator[None]:
    """Small tensors are fastest with one thread; with more, a busy machine makes them wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def print_probes() -> None:
    """Every probe, and what it asks."""
    width = max(map(len, PROBES))
    for name, probe in PROBES.items():
        print(f"{name:{width}}  {probe.question}")


def run_probe(name: str, checkpoint: str, form: str, seed: int) -> None:
    """Prints what a probe finds in a counter: its verdict, or everything as JSON or CSV."""
    if name not in PROBES:
        raise unknown("probe", name, PROBES)
    with one_thread():
        result = PROBES[name].run(load_subject(checkpoint), seed)
    if form == "json":
        print(json.dumps(result.to_dict(), allow_nan=False))
    elif form == "csv":
        sys.stdout.write(result.to_frame().to_csv(index=False, float_format="%.9g"))
    else:
        say(result.verdict.sentence)
        print(f"What would change this: {result.verdict.would_change}")


def run_report(checkpoints: tuple[str, ...], out: Path, probes: tuple[str, ...], seed: int, progress: bool) -> None:
    """Writes a report and prints its verdicts and where it is."""
    from app.report.write import write_report

    if out.exists() and not out.is_dir():
        raise CountLensError(f"--out {out} is a file: name a folder")
    with one_thread():
        report = collect(checkpoints, probes, seed, progress)
    files = write_report(report, out)
    for name, by_counter in report.results.items():
        print(PROBES[name].title)
        for counter, result in by_counter.items():
            said = f"skipped: {result.reason}" if isinstance(result, Skipped) else result.verdict.sentence
            say(f"  {counter}: {said}")
    print(f"wrote {', '.join(path.name for path in files)} to {out}")
