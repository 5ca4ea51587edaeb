"""Many runs: whatever kills a sweep, starting it again does what is left and nothing twice.

An engine trains runs somewhere and tells what happens; everything that lasts is in the run folders.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from models.errors import CountLensError, unknown
from training.config import TrainConfig
from training.grid import SweepRun
from training.loop import train
from training.manifest import Manifest
from training.run import BusyError, RunFolder

Outcome = Literal["finished", "failed", "busy"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a run."""

    run: SweepRun
    kind: Literal["started", "finished", "failed", "busy", "lost"]  # lost: its worker died; it is tried again


@dataclass(frozen=True)
class EngineOptions:
    """Where and how an engine trains."""

    workers: int | None = None  # runs at a time: one a GPU or, without any, one a core
    retries: int = 3  # how often a run is tried again after its worker or node died
    address: str | None = None  # ray: an existing cluster ("auto", or ray://host:port); None starts one here
    cpus: float = 1.0  # ray: cores a run
    gpus: float = 0.0  # ray: GPUs a run, may be a part of one


Engine = Callable[[Manifest, list[SweepRun], EngineOptions], Iterator[Event | None]]
ENGINES = {"local": "training.local_engine", "ray": "training.ray_engine"}  # modules with a function `run_all`


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


def train_run(path: Path, config: TrainConfig, progress: bool = False) -> Outcome:
    """Trains one run of a sweep from wherever it is; an error is written into its folder, not raised."""
    run = RunFolder(path)
    try:
        if not run.exists:
            run = RunFolder.create(path, config)
        if run.config() != config:
            raise CountLensError(f"{path} holds another run than the sweep's: move it away")
        train(run, progress)
    except BusyError:
        return "busy"
    except Exception as error:
        expected = isinstance(error, CountLensError)
        with suppress(CountLensError):  # a full disk has no room for its own error
            run.record_failure(f"{error}\n" if expected else traceback.format_exc())
        return "failed"
    run.record_failure(None)
    return "finished"
