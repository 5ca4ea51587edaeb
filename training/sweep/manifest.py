"""A sweep on disk: a manifest with one line per run. How far a run has got is recorded only in its own folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from models.atomic import write_text
from models.border import build, decode_json, read_text
from models.errors import CountLensError, shown
from models.header import read_info
from models.ranges import Name, Step
from training.config import MAX_RUNS, RunConfig, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.sweep.grid import SweepRun

RunState = Literal["finished", "failed", "started", "waiting"]
MAX_BYTES = 64 * 2**20  # size of a manifest; a run takes about 1,500


@dataclass(frozen=True)
class RunStatus:
    """How far a run has got. Scores are the latest ones or, if it is finished, those of its best checkpoint."""

    state: RunState
    step: int  # of the last evaluation
    steps: int
    seconds: float  # of training up to there
    ind: float | None
    ood: float | None
    error: str | None  # the last line of the error that ended it


@dataclass(frozen=True)
class Manifest:
    """The runs of a sweep, in order; their folders lie beside the manifest's file."""

    path: Path
    runs: tuple[SweepRun, ...]

    def check(self) -> None:
        """Refuses a sweep if the folder of one of its runs holds a run with other settings."""
        for run in self.runs:
            folder = self.folder(run)
            if folder.exists and folder.config() != run.config:
                raise CountLensError(
                    f"{folder.path} was trained with other settings than the grid's {run.name}: "
                    "move it away, or choose another --out"
                )

    def write(self) -> None:
        """Writes the file, unless it is the same already: all jobs of an array call this."""
        text = "".join(
            json.dumps({"index": index, "name": run.name, "config": run.config.to_dict()}) + "\n"
            for index, run in enumerate(self.runs)
        )
        if not self._holds(text.encode()):
            write_text(self.path, text)

    def _holds(self, content: bytes) -> bool:
        """Whether the file is there with this content; one of another size, which may be huge, is not read."""
        path = self.path
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """Reads a manifest. Refuses a file with bad lines or repeated names."""
        numbered = enumerate(read_text(path, MAX_BYTES).splitlines(), 1)
        lines = [(number, line) for number, line in numbered if line.strip()]
        if len(lines) > MAX_RUNS:
            raise CountLensError(f"{path} has {len(lines):,} runs, more than {MAX_RUNS:,}: split it")
        runs: dict[str, SweepRun] = {}
        for number, line in lines:
            run = _parse(line, f"{path}, line {number}")
            if run.name in runs:
                raise CountLensError(f"{path} has the run {run.name} more than once: make the manifest again")
            runs[run.name] = run
        return cls(path, tuple(runs.values()))

    def folder(self, run: SweepRun) -> RunFolder:
        """The folder of a run, whether it exists yet or not."""
        return RunFolder(self.path.parent / run.name)

    def unfinished(self) -> list[SweepRun]:
        """The runs that are not finished, including those that failed."""
        return [run for run in self.runs if not self.folder(run).finished]

    def statuses(self) -> Iterator[tuple[SweepRun, RunStatus]]:
        """Yields every run with its status."""
        for run in self.runs:
            yield run, status_of(self.folder(run), run.config)


def last_line(text: str) -> str:
    """The last line of an error, which in a traceback says what happened."""
    return text.strip().splitlines()[-1] if text.strip() else "unknown"


@dataclass(frozen=True)
class _Line:
    """A line of the file."""

    name: Name
    config: TrainConfig
    index: Step = 0


def _parse(line: str, where: str) -> SweepRun:
    """The run of one line."""
    try:
        entry = build(_Line, decode_json(line, "the line"), "a line")
        run = SweepRun(entry.name, resolve(entry.config))
    except CountLensError as error:
        raise CountLensError(
            f"{where} is not a run of a sweep ({error}): give the manifest of `countlens sweep`"
        ) from error
    path = PurePosixPath(run.name)
    if path.is_absolute() or ".." in path.parts or not path.parts or not run.name.isprintable():
        raise CountLensError(f"{where}: {shown(run.name)} is not the name of a run: it must lie beside the manifest")
    return run


def status_of(folder: RunFolder, config: RunConfig) -> RunStatus:
    """The status of a run, read from its folder."""
    last: dict[str, Any] = {"step": 0, "seconds": 0.0}
    scores: dict[str, Any] = {}
    failure = None if folder.finished else folder.failure
    try:
        last = [last, *folder.metrics()][-1] if folder.exists else last
        scores = read_info(folder.best).scores if folder.finished else last
    except CountLensError as error:  # one damaged run must not hide the others
        failure = str(error)
    state: RunState = "waiting"
    if failure is not None:
        state = "failed"
    elif folder.finished:
        state = "finished"
    elif folder.exists:
        state = "started"
    return RunStatus(
        state=state,
        step=last["step"],
        steps=config.optimiser.steps,
        seconds=last["seconds"],
        ind=scores.get("ind"),
        ood=scores.get("ood"),
        error=last_line(failure) if failure else None,
    )
