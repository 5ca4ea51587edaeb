"""Carries a study out: trains its grid, measures every run as soon as it is finished, and computes the result.

All state is on disk, so that a study that was stopped, even killed, goes on where it stopped:

    runs.jsonl       the manifest of its grid; the runs lie in folders beside it
    measured.jsonl   one line per measured run
"""

import json
import os
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from models.atomic import write_text, writing
from models.border import build, decode_json, read_text
from models.errors import CountLensError, shown
from probes.result import plain
from probes.studies.registry import get_study
from probes.studies.result import StudyResult
from probes.studies.study import Row, Study, table_of
from training.config import EngineOptions
from training.run.state import fingerprint
from training.sweep.engine import Event, sweep
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest

MAX_BYTES = 64 * 2**20  # of measured.jsonl


@dataclass(frozen=True)
class _Line:
    """A line of measured.jsonl: a run as it was measured."""

    run: str
    version: int  # of the study's measurement
    checkpoint: str  # fingerprint of the file that was measured
    row: Row


@dataclass(frozen=True)
class StudyFolder:
    """A study on disk: its runs, and what was measured on them."""

    path: Path
    name: str  # of the study
    quick: bool = False
    unmeasured: dict[str, str] = field(default_factory=dict)  # runs whose measurement failed, and why

    @classmethod
    def below(cls, out: Path, name: str, quick: bool) -> "StudyFolder":
        """The folder of this study below `out`; a quick study has a folder of its own."""
        get_study(name)
        return cls(out / f"{name}{'-quick' * quick}", name, quick)

    @property
    def study(self) -> Study:
        return get_study(self.name)

    @cached_property
    def manifest(self) -> Manifest:
        """The runs of the grid."""
        return Manifest(self.path / "runs.jsonl", tuple(self.study.runs(self.quick)))

    @property
    def _measured(self) -> Path:
        return self.path / "measured.jsonl"

    def rows(self) -> dict[str, Row]:
        """The rows that are measured, by run, but for those of another version or of another checkpoint."""
        rows: dict[str, Row] = {}
        runs = {run.name: run for run in self.manifest.runs}
        for line in self._lines():
            if line.run in runs and line.version == self.study.version:
                checkpoint = self.manifest.folder(runs[line.run]).last
                if checkpoint.is_file() and fingerprint(checkpoint) == line.checkpoint:
                    rows[line.run] = self._complete(line.row, runs[line.run])
        return rows

    def _complete(self, row: Row, run: SweepRun) -> Row:
        """A line of the table with a value in every column: settings from the run itself, numbers from the file."""
        settings = self._settings(run)
        for name, value in row.items():
            if name not in settings and (name not in self.study.protocol.measured or isinstance(value, str)):
                raise CountLensError(
                    f"{self._measured}: {run.name} has {shown(name)} = {shown(value)}, not a number of this study: "
                    "remove that file, and the finished runs are measured again"
                )
        absent: Row = {name: None for name in self.study.protocol.measured if name not in row}
        return {**row, **absent, **settings}

    def _settings(self, run: SweepRun) -> Row:
        """What a line of the table says of a run before it is measured."""
        return {"run": run.name, "seed": float(run.config.seed), **self.study.factors(run.config)}

    def _lines(self) -> list[_Line]:
        """All complete lines; a kill may have cut the last one short."""
        if not self._measured.is_file():
            return []
        *texts, _ = read_text(self._measured, MAX_BYTES).split("\n")
        return [
            build(_Line, decode_json(text, f"{self._measured}, line {number}"), f"{self._measured}, line {number}")
            for number, text in enumerate(texts, 1)
        ]

    def measure(self, run: SweepRun) -> None:
        """Measures a finished run and appends its line; a run that cannot be measured goes to `unmeasured`."""
        folder, study = self.manifest.folder(run), self.study
        try:
            numbers = study.measure(folder)
        except CountLensError as error:  # a broken run must not stop the others
            self.unmeasured[run.name] = str(error)
            return
        row = {**self._settings(run), **numbers}
        line = _Line(run.name, study.version, fingerprint(folder.last), row)
        text = json.dumps(plain(line), allow_nan=False) + "\n"
        with writing(self._measured), self._measured.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file)

    def drop_cut_line(self) -> None:
        """Removes an incomplete last line, so that the next one begins on a line of its own."""
        if self._measured.is_file():
            text = read_text(self._measured, MAX_BYTES)
            if text and not text.endswith("\n"):
                write_text(self._measured, text[: text.rfind("\n") + 1])

    def result(self) -> StudyResult:
        """The result over the runs that are measured so far; raises CountLensError if there are none."""
        study, manifest, rows = self.study, self.manifest, self.rows()
        missing = {
            run.name: self.unmeasured.get(run.name) or status.error or "not finished"
            for run, status in manifest.statuses()
            if run.name not in rows
        }
        ordered = tuple(rows[run.name] for run in manifest.runs if run.name in rows)
        if not ordered:
            name, reason = next(iter(missing.items()))
            raise CountLensError(f"no run of the study {self.name} is finished in {self.path}: {name}: {reason}")
        table = table_of(ordered)
        return StudyResult(
            study=self.name,
            number=study.number,
            title=study.title,
            protocol=study.protocol,
            protocol_digest=study.protocol.digest,
            quick=self.quick,
            n_runs=len(manifest.runs),
            missing=missing,
            rows=ordered,
            claims=study.judge(table),
            panels=study.draw(table),
        )


def conduct(
    folder: StudyFolder, engine: str = "local", options: EngineOptions | None = None
) -> Generator[Event | None, None, None]:
    """Trains the unfinished runs of the grid and measures each; yields the same events as a sweep."""
    manifest = folder.manifest
    manifest.check()
    manifest.write()
    folder.drop_cut_line()
    measured = folder.rows()
    for run in manifest.runs:
        if run.name not in measured and manifest.folder(run).finished:
            folder.measure(run)
    for event in sweep(manifest, engine, options):
        if event is not None and event.kind == "finished":
            folder.measure(event.run)
        yield event
