"""A sweep on disk: a manifest with one line a run; how far each run is stands in its own folder and nowhere else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from models.errors import CountLensError
from models.files import write_text
from models.info import read_info
from training.config import TrainConfig
from training.grid import SweepRun
from training.presets import resolve
from training.run import RunFolder

State = Literal["finished", "failed", "started", "waiting"]


@dataclass(frozen=True)
class RunStatus:
    """How far a run is; the scores are the last ones or, when it is finished, those of its best checkpoint."""

    state: State
    step: int  # of the last evaluation
    steps: int
    seconds: float  # of training up to there
    ind: float | None
    ood: float | None
    error: str | None  # the last line of what ended it


@dataclass(frozen=True)
class Manifest:
    """The runs of a sweep, in order; their folders lie beside the manifest's file."""

    path: Path
    runs: tuple[SweepRun, ...]

    def check(self) -> None:
        """Refuses a sweep of which a run is already there with other settings."""
        for run in self.runs:
            folder = self.folder(run)
            if folder.exists and folder.config() != run.config:
                raise CountLensError(
                    f"{folder.path} was trained with other settings than the grid's {run.name}: "
                    "move it away, or choose another --out"
                )

    def write(self) -> None:
        """Writes the file, unless it is there already: the jobs of an array all come by here."""
        text = "".join(
            json.dumps({"index": index, "name": run.name, "config": run.config.to_dict()}) + "\n"
            for index, run in enumerate(self.runs)
        )
        if not self.path.is_file() or self.path.read_text() != text:
            write_text(self.path, text)

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """The manifest in a file."""
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CountLensError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        runs = tuple(_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
        names = [run.name for run in runs]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise CountLensError(f"{path} has the run {double} more than once: make the manifest again")
        return cls(path, runs)

    def folder(self, run: SweepRun) -> RunFolder:
        """Where a run is or will be."""
        return RunFolder(self.path.parent / run.name)

    def unfinished(self) -> list[SweepRun]:
        """What is still to be done, the failed ones included."""
        return [run for run in self.runs if not self.folder(run).finished]

    def statuses(self) -> Iterator[tuple[SweepRun, RunStatus]]:
        """How far every run is."""
        for run in self.runs:
            yield run, status_of(self.folder(run), run.config)


def last_line(text: str) -> str:
    """The last line of an error: of a traceback, the one that says what happened."""
    return text.strip().splitlines()[-1] if text.strip() else "unknown"


def _parse(line: str, where: str) -> SweepRun:
    """The run of one line."""
    try:
        entry = json.loads(line)
        name, config = entry["name"], resolve(TrainConfig.from_dict(entry["config"]))
        path = PurePosixPath(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CountLensError(
            f"{where} is no run of a sweep ({error}): name the manifest of `countlens sweep`"
        ) from error
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise CountLensError(f"{where}: {name!r} is no name of a run: it must lie beside the manifest")
    return SweepRun(name, config)


def status_of(folder: RunFolder, config: TrainConfig) -> RunStatus:
    """How far a run is, from its folder alone."""
    last: dict[str, Any] = {"step": 0, "seconds": 0.0}
    scores: dict[str, Any] = {}
    failure = None if folder.finished else folder.failure
    try:
        last = [last, *folder.metrics()][-1] if folder.exists else last
        scores = read_info(folder.best).scores if folder.finished else last
    except CountLensError as error:  # one damaged run must not hide the others
        failure = str(error)
    state: State = "waiting"
    if failure is not None:
        state = "failed"
    elif folder.finished:
        state = "finished"
    elif folder.exists:
        state = "started"
    return RunStatus(
        state=state,
        step=last["step"],
        steps=config.optimiser.steps or 0,
        seconds=last["seconds"],
        ind=scores.get("ind"),
        ood=scores.get("ood"),
        error=last_line(failure) if failure else None,
    )
