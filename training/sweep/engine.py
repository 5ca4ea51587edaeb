"""Sweeps: many runs. After any kill, starting the sweep again does what is left and nothing twice.

An engine trains runs somewhere and yields events; all results are in the run folders.
"""

import traceback
from collections.abc import Callable, Generator, Iterator
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
class AttemptEnd:
    """How an attempt to train a run ended."""

    kind: Literal["finished", "failed", "busy"]  # busy: another process trains it
    error: str | None = None  # why it failed, even if the error could not be written into the folder


@dataclass(frozen=True)
class Event:
    """What happened to a run."""

    run: SweepRun
    kind: Literal["started", "finished", "failed", "busy", "lost"]  # lost: its worker died
    error: str | None = None  # why it failed


TICK_SECONDS = 0.5  # how long an engine waits for news
BUSY_SECONDS = 2.0  # until a run that another process trains is tried again

Engine = Callable[[Manifest, list[SweepRun], EngineOptions], Iterator[Event | None]]
# The module of each engine, which has a function `run_all`.
ENGINES = {"local": "training.sweep.local_engine", "ray": "training.sweep.ray_engine"}


def get_engine(name: str) -> Engine:
    """The engine of this name. It is imported on use, since Ray is an optional dependency."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    engine: Engine = import_module(ENGINES[name]).run_all
    return engine


def sweep(
    manifest: Manifest, engine: str = "local", options: EngineOptions | None = None
) -> Generator[Event | None, None, None]:
    """Trains the unfinished runs and yields events; and None now and then, so that a live table can be redrawn."""
    run_all = get_engine(engine)
    unfinished = manifest.unfinished()
    if unfinished:
        yield from run_all(manifest, unfinished, options or EngineOptions())


def train_run(path: Path, config: RunConfig, progress: bool = False) -> AttemptEnd:
    """Trains one run of a sweep from where it stopped. An error is written into its folder and not raised."""
    try:
        train(RunFolder.open_or_create(path, config), progress)
    except BusyError:
        return AttemptEnd("busy")
    except Exception as error:
        expected = isinstance(error, CountLensError)
        return record_failure(RunFolder(path), f"{error}\n" if expected else traceback.format_exc())
    return AttemptEnd("finished")


def record_failure(run: RunFolder, error: str) -> AttemptEnd:
    """Writes an error into the folder of its run and returns the outcome: busy, if another process trains the run."""
    try:
        run.record_failure(error)
    except BusyError:
        return AttemptEnd("busy")
    except CountLensError:
        pass  # a full disk cannot even store the error
    return AttemptEnd("failed", error)
