"""Many runs: whatever kills a sweep, starting it again does what is left and nothing twice.

An engine trains runs somewhere and tells what happens; everything that lasts is in the run folders.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from models.errors import CountLensError, unknown
from training.config import EngineOptions, RunConfig
from training.run.folder import BusyError, RunFolder
from training.run.loop import train
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest


@dataclass(frozen=True)
class Outcome:
    """How an attempt to train a run ended."""

    kind: Literal["finished", "failed", "busy"]  # busy: another process trains it
    error: str | None = None  # why it failed, also where the folder had no room for it


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    run: SweepRun
    kind: Literal["started", "finished", "failed", "busy", "lost"]  # lost: its worker died; it is tried again
    error: str | None = None  # why it failed


Engine = Callable[[Manifest, list[SweepRun], EngineOptions], Iterator[Event | None]]
ENGINES = {
    "local": "training.sweep.local_engine",
    "ray": "training.sweep.ray_engine",
}  # modules with a function `run_all`


def get_engine(name: str) -> Engine:
    """The engine of this name, imported only now: Ray is an extra."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    engine: Engine = import_module(ENGINES[name]).run_all
    return engine


def sweep(manifest: Manifest, engine: str = "local", options: EngineOptions | None = None) -> Iterator[Event | None]:
    """Trains what is unfinished and yields what happens; None now and then, for whoever draws a live table."""
    run_all = get_engine(engine)
    unfinished = manifest.unfinished()
    if unfinished:
        yield from run_all(manifest, unfinished, options or EngineOptions())


def train_run(path: Path, config: RunConfig, progress: bool = False) -> Outcome:
    """Trains one run of a sweep from wherever it is; an error is written into its folder, not raised."""
    try:
        train(RunFolder.open_or_create(path, config), progress)
    except BusyError:
        return Outcome("busy")
    except Exception as error:
        expected = isinstance(error, CountLensError)
        return record_failure(RunFolder(path), f"{error}\n" if expected else traceback.format_exc())
    return Outcome("finished")


def record_failure(run: RunFolder, error: str) -> Outcome:
    """Writes an error into the folder of its run, unless another process trains the run by now."""
    try:
        run.record_failure(error)
    except BusyError:
        return Outcome("busy")
    except CountLensError:
        pass  # a full disk has no room for its own error
    return Outcome("failed", error)
