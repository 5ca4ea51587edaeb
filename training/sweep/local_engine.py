"""Sweeps on this machine, with worker processes: one per core or per GPU. Any of them may be killed at any time."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from training.config import EngineOptions
from training.sweep.engine import BUSY_SECONDS, TICK_SECONDS, AttemptEnd, Event, record_failure, train_run
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest

STOP_SECONDS = 60.0  # for workers to save their state after an interrupt


@dataclass
class _Worker:
    """A process that trains one run after another, and the run that it is training."""

    process: SpawnProcess
    connection: Connection
    gpu: int | None
    run: SweepRun | None = None


def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event | None]:
    """Trains the runs in a pool of workers and yields events. If a worker dies, a new one takes its run."""
    pool = _Pool(manifest, runs, options)
    try:
        while pool.working:
            yield from pool.hand_out()
            yield from pool.collect()
            yield None
    finally:
        pool.close()


def default_workers() -> int:
    """The number of workers: one per GPU or, without GPUs, one per core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.cuda.device_count() or cores


class _Pool:
    def __init__(self, manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> None:
        self.manifest, self.options = manifest, options
        self.queue = deque(runs)
        self.deaths: dict[str, int] = {}
        self.resting: list[SweepRun] = []  # trained by another process
        self.rest = 0.0
        gpus = torch.cuda.device_count()
        count = min(options.workers or default_workers(), len(runs))
        self.workers = [self._start(index % gpus if gpus else None) for index in range(count)]

    @property
    def working(self) -> bool:
        return bool(self.queue or self.resting) or any(worker.run for worker in self.workers)

    def hand_out(self) -> Iterator[Event]:
        """Gives every idle worker the next run, and yields an event for each."""
        for worker in self.workers:
            if worker.run is None and self.queue:
                worker.run = self.queue.popleft()
                try:
                    worker.connection.send((self.manifest.folder(worker.run).path, worker.run.config))
                except OSError:  # it died while idle: `collect` will notice
                    continue
                yield Event(worker.run, "started")

    def collect(self) -> Iterator[Event]:
        """Waits a moment for reports and deaths of workers, and yields an event for each."""
        places: list[Any] = [worker.connection for worker in self.workers]
        ready = set(wait([*places, *(worker.process.sentinel for worker in self.workers)], TICK_SECONDS))
        for index, worker in enumerate(self.workers):
            if worker.connection in ready:
                try:
                    outcome = worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._replace(index)
                    continue
                run, worker.run = worker.run, None
                if run is not None:
                    yield self._end(run, outcome)
            elif worker.process.sentinel in ready:
                yield from self._replace(index)
        self.rest += TICK_SECONDS
        if self.rest > BUSY_SECONDS:
            self.queue.extend(self.resting)
            self.resting, self.rest = [], 0.0

    def close(self) -> None:
        """Asks the workers to save and end. Those that do not end in time are killed; their runs can resume too."""
        for worker in self.workers:
            if worker.run is not None and worker.process.is_alive() and worker.process.pid is not None:
                os.kill(worker.process.pid, signal.SIGTERM)
            worker.connection.close()
        for worker in self.workers:
            worker.process.join(STOP_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()

    def _end(self, run: SweepRun, outcome: AttemptEnd) -> Event:
        if outcome.kind == "busy":
            self.resting.append(run)
        return Event(run, outcome.kind, outcome.error)

    def _replace(self, index: int) -> Iterator[Event]:
        """Replaces a dead worker by a new one and puts its run at the front of the queue, or gives the run up."""
        dead = self.workers[index]
        dead.connection.close()
        dead.process.join()
        self.workers[index] = self._start(dead.gpu)
        if dead.run is None:
            return
        deaths = self.deaths[dead.run.name] = self.deaths.get(dead.run.name, 0) + 1
        if deaths <= self.options.retries:
            self.queue.appendleft(dead.run)
            yield Event(dead.run, "lost")
            return
        code = dead.process.exitcode
        error = f"its worker process died {deaths} times, last with exit code {code} (out of memory?)\n"
        yield self._end(dead.run, record_failure(self.manifest.folder(dead.run), error))

    def _start(self, gpu: int | None) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a fork of a process with torch threads may hang
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, gpu), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, gpu)


def _work(connection: Connection, gpu: int | None) -> None:
    """The main function of a worker: trains the runs that it is sent until the driver closes the connection."""
    os.setpgrp()  # Ctrl-C reaches only the driver, which asks once: a second signal would not wait for a save
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    threading.Thread(target=_die_with_the_driver, daemon=True).start()
    try:
        while True:
            path, config = connection.recv()
            connection.send(train_run(path, config))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _die_with_the_driver() -> None:
    """Ends this process when its driver has ended: a worker without a driver would block the next sweep."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
