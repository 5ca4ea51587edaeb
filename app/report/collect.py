"""Runs probes on counters and collects their results, for report.json and for the page."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from app.escape import printable
from models.errors import CountLensError, unknown
from probes.cells import CellSeeds
from probes.over_seeds import SeedVerdict, gather, probe_seed
from probes.registry import PROBES, Subject, load_subject
from probes.result import NotApplicable, Result, plain
from training.paper.tables import paper_numbers_of

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Skipped:
    """Stands for the result of a probe that does not apply to a counter."""

    reason: str


@dataclass(frozen=True)
class Report:
    """The results of probes on counters."""

    seed: int
    subjects: tuple[Subject, ...]
    results: dict[str, dict[str, Result | Skipped]]  # by probe, then by counter or cell
    comparisons: dict[str, Result]  # by probe: what it finds in all counters together

    def to_dict(self) -> dict[str, Any]:
        """The contents of report.json; the same counters, probes and seed give the same bytes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "countlens": version("countlens"),
            "seed": self.seed,
            "checkpoints": [describe_subject(subject) for subject in self.subjects],
            "probes": {
                name: {
                    "title": PROBES[name].title,
                    "results": {counter: _plain(result) for counter, result in by_counter.items()},
                    **({"comparison": _plain(self.comparisons[name])} if name in self.comparisons else {}),
                }
                for name, by_counter in self.results.items()
            },
        }


def collect(checkpoints: Sequence[str], probes: Sequence[str], seed: int, progress: bool) -> Report:
    """Runs the probes (all, if none is named) on the counters."""
    names = _select_probes(checkpoints, probes)
    subjects = tuple(_load(checkpoint) for checkpoint in dict.fromkeys(checkpoints))
    results: dict[str, dict[str, Result | Skipped]] = {name: {} for name in names}
    with _progress_bar(len(names) * len(subjects), progress) as bar:
        for subject in subjects:
            for name in names:
                bar.set_description_str(f"{subject.name} {name}")
                results[name][subject.name] = _try(partial(PROBES[name].run, subject, seed))
                bar.update()
    return Report(seed, subjects, results, _compare(subjects, results))


def collect_cells(cells: Sequence[CellSeeds], probes: Sequence[str], seed: int, progress: bool) -> Report:
    """Runs the probes (all, if none is named) on every seed of some cells; results are by cell."""
    names = _select_probes(cells, probes)
    subjects: list[Subject] = []
    results: dict[str, dict[str, Result | Skipped]] = {name: {} for name in names}
    counters = [(cell, number, path) for cell in cells for number, path in cell.files.items()]
    verdicts: dict[tuple[str, str], list[SeedVerdict]] = {(cell.name, name): [] for cell in cells for name in names}
    with _progress_bar(len(names) * len(counters), progress) as bar:
        for cell, number, path in counters:
            subject = _load(path)
            subjects.append(subject)
            for name in names:
                bar.set_description_str(f"{subject.name} {name}")
                verdicts[cell.name, name].append(probe_seed(name, number, subject, seed))
                bar.update()
    for cell in cells:
        for name in names:
            results[name][printable(cell.name)] = gather(name, cell, verdicts[cell.name, name])
    return Report(seed, tuple(subjects), results, {})


def _load(checkpoint: str | Path) -> Subject:
    subject = load_subject(checkpoint)
    return replace(subject, name=printable(subject.name))


def _progress_bar(total: int, progress: bool) -> "tqdm[NoReturn]":
    return tqdm(total=total, disable=not progress, unit="probe", dynamic_ncols=True)


def _select_probes(counters: Sequence[object], probes: Sequence[str]) -> list[str]:
    """These probes, or all if none is named, in the registry's order; raises CountLensError without counters."""
    if not counters:
        raise CountLensError("a report of which counters? Name at least one; `countlens list` shows what there is")
    for name in probes:
        if name not in PROBES:
            raise unknown("probe", name, PROBES)
    return [name for name in PROBES if name in probes or not probes]


def _compare(subjects: Sequence[Subject], results: dict[str, dict[str, Result | Skipped]]) -> dict[str, Result]:
    """The results of probes that compare counters, if a report has several."""
    comparisons = {}
    by_name = {subject.name: subject for subject in subjects}
    for name, by_counter in results.items():
        compare = PROBES[name].compare
        whole = {counter: result for counter, result in by_counter.items() if isinstance(result, Result)}
        if compare is not None and len(whole) > 1:
            with suppress(NotApplicable):
                comparisons[name] = compare(by_name, whole)
    return comparisons


def _try(run: Callable[[], Result]) -> Result | Skipped:
    try:
        return run()
    except NotApplicable as reason:
        return Skipped(str(reason))


def _plain(result: Result | Skipped) -> dict[str, Any]:
    return {"not_applicable": result.reason} if isinstance(result, Skipped) else result.to_dict()


def describe_subject(subject: Subject) -> dict[str, Any]:
    """A counter as JSON values: its file's hash, settings and scores, and the paper's numbers for it."""
    info = subject.info
    paper = paper_numbers_of(info)
    return {
        "name": subject.name,
        "sha256": hashlib.sha256(subject.path.read_bytes()).hexdigest(),
        "task": info.task,
        "family": info.family,
        "model": info.model,
        "policy": info.policy,
        "seed": info.seed,
        "step": info.step,
        "scores": info.scores,
        "last_scores": info.last_scores,
        "paper": plain(paper),
    }
