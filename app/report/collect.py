"""Runs probes on counters and keeps what comes out, in memory and in the plain form that report.json has."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

from tqdm import tqdm

from app.escape import printable
from models.errors import CountLensError, unknown
from probes.cells import Cell
from probes.over_seeds import SeedVerdict, gather, probe_seed
from probes.registry import PROBES, Subject, load_subject
from probes.result import NotApplicable, Result, plain
from training.paper.tables import paper_numbers_of

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Skipped:
    """A probe that makes no sense for a counter."""

    reason: str


@dataclass(frozen=True)
class Report:
    """Everything that a report shows."""

    seed: int
    subjects: tuple[Subject, ...]
    results: dict[str, dict[str, Result | Skipped]]  # probe, then counter
    comparisons: dict[str, Result]  # probe: what only several counters together show

    def to_dict(self) -> dict[str, Any]:
        """report.json: the same counters, probes and seed give the same, byte for byte."""
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
    """Runs the probes (all, when none is named) on the counters."""
    chosen = _chosen(checkpoints, probes)
    loaded = [load_subject(checkpoint) for checkpoint in dict.fromkeys(checkpoints)]
    subjects = tuple(replace(subject, name=printable(subject.name)) for subject in loaded)
    results: dict[str, dict[str, Result | Skipped]] = {name: {} for name in chosen}
    bar = tqdm(total=len(chosen) * len(subjects), disable=not progress, unit="probe", dynamic_ncols=True)
    with bar:
        for subject in subjects:
            for name in chosen:
                bar.set_description_str(f"{subject.name} {name}")
                results[name][subject.name] = _try(partial(PROBES[name].run, subject, seed))
                bar.update()
    return Report(seed, subjects, results, _compare(subjects, results))


def collect_cells(cells: Sequence[Cell], probes: Sequence[str], seed: int, progress: bool) -> Report:
    """Runs the probes (all, when none is named) on every seed of some cells; results are by cell."""
    chosen = _chosen(cells, probes)
    subjects: list[Subject] = []
    results: dict[str, dict[str, Result | Skipped]] = {name: {} for name in chosen}
    counters = [(cell, number, path) for cell in cells for number, path in cell.files.items()]
    verdicts: dict[tuple[str, str], list[SeedVerdict]] = {(cell.name, name): [] for cell in cells for name in chosen}
    with tqdm(total=len(chosen) * len(counters), disable=not progress, unit="probe", dynamic_ncols=True) as bar:
        for cell, number, path in counters:
            subject = load_subject(path)
            subjects.append(replace(subject, name=printable(subject.name)))
            for name in chosen:
                bar.set_description_str(f"{subjects[-1].name} {name}")
                verdicts[cell.name, name].append(probe_seed(name, number, subject, seed))
                bar.update()
    for cell in cells:
        for name in chosen:
            results[name][printable(cell.name)] = gather(name, cell, verdicts[cell.name, name])
    return Report(seed, tuple(subjects), results, {})


def _chosen(asked: Sequence[object], probes: Sequence[str]) -> list[str]:
    """The probes that are named, or all, in the registry's order."""
    if not asked:
        raise CountLensError("a report of which counters? Name at least one; `countlens list` shows what there is")
    for name in probes:
        if name not in PROBES:
            raise unknown("probe", name, PROBES)
    return [name for name in PROBES if name in probes or not probes]


def _compare(subjects: Sequence[Subject], results: dict[str, dict[str, Result | Skipped]]) -> dict[str, Result]:
    """What several counters show together, where that is anything."""
    comparisons = {}
    by_name = {subject.name: subject for subject in subjects}
    for name, by_counter in results.items():
        compare = PROBES[name].compare
        found = {counter: result for counter, result in by_counter.items() if isinstance(result, Result)}
        if compare is not None and len(found) > 1:
            with suppress(NotApplicable):
                comparisons[name] = compare(by_name, found)
    return comparisons


def _try(run: Callable[[], Result]) -> Result | Skipped:
    try:
        return run()
    except NotApplicable as reason:
        return Skipped(str(reason))


def _plain(result: Result | Skipped) -> dict[str, Any]:
    return {"not_applicable": result.reason} if isinstance(result, Skipped) else result.to_dict()


def describe_subject(subject: Subject) -> dict[str, Any]:
    """Which counter it is, where it comes from, how it scored, and what the paper has for it."""
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
