"""Sweeps on a Ray cluster. Every node needs CountLens installed and sees the sweep's folder (a shared file system).

Ray only reports that a run has ended: the results are in the run folders. If a worker or node dies, Ray starts its run
again elsewhere, and the run goes on from its last saved state.
"""

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from models.errors import CountLensError
from training.config import EngineOptions
from training.sweep.engine import BUSY_SECONDS, TICK_SECONDS, AttemptEnd, Event, record_failure, train_run
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest


def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event | None]:
    """Submits the runs to the cluster and yields events."""
    ray = _import_ray()
    with _cluster(ray, options):
        task = ray.remote(num_cpus=options.cpus, num_gpus=options.gpus, max_retries=options.retries)(train_run)
        jobs = _Jobs(ray, task, manifest, runs, options.workers or len(runs))
        try:
            while jobs.working:
                yield from jobs.submit()
                yield from jobs.collect()
                yield None
        finally:
            jobs.cancel()


class _Jobs:
    def __init__(self, ray: Any, task: Any, manifest: Manifest, runs: list[SweepRun], at_once: int) -> None:
        self.ray, self.task, self.manifest, self.at_once = ray, task, manifest, at_once
        self.queue = deque(runs)
        self.submitted: dict[Any, SweepRun] = {}
        self.held = {run.name: manifest.folder(run).held_at() for run in runs}  # before this sweep
        self.resting: list[tuple[float, SweepRun]] = []  # trained by another process; with the last attempt's time

    @property
    def working(self) -> bool:
        return bool(self.queue or self.submitted or self.resting)

    def submit(self) -> Iterator[Event]:
        """Submits as many runs as may be trained at once, and yields an event for each run that has begun."""
        while self.resting and time.monotonic() - self.resting[0][0] > BUSY_SECONDS:
            self.queue.append(self.resting.pop(0)[1])
        while self.queue and len(self.submitted) < self.at_once:
            run = self.queue.popleft()
            path = self.manifest.folder(run).path.absolute()  # workers have another working folder
            self.submitted[self.task.remote(path, run.config)] = run
        for run in self.submitted.values():
            now = self.manifest.folder(run).held_at()
            if now != self.held[run.name]:
                self.held[run.name] = now
                yield Event(run, "started")

    def collect(self) -> Iterator[Event]:
        """Waits a moment for runs that have ended, and yields an event for each."""
        if not self.submitted:
            time.sleep(TICK_SECONDS)
            return
        for reference in self.ray.wait(list(self.submitted), num_returns=1, timeout=TICK_SECONDS)[0]:
            run = self.submitted.pop(reference)
            try:
                outcome: AttemptEnd = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                text = f"{type(error).__name__}: its worker or node died too often\n"
                outcome = record_failure(self.manifest.folder(run), text)
            if outcome.kind == "busy":
                self.resting.append((time.monotonic(), run))
            yield Event(run, outcome.kind, outcome.error)

    def cancel(self) -> None:
        """Stops what is still running; each run saves its state first."""
        for reference in self.submitted:
            self.ray.cancel(reference)


@contextmanager
def _cluster(ray: Any, options: EngineOptions) -> Iterator[None]:
    """Connects to a cluster for the block: that of this process, that at the address, or a new one on this machine."""
    if ray.is_initialized():
        yield
        return
    try:
        if options.address is not None:
            _knock(options.address)
            ray.init(address=options.address, log_to_driver=False)
        else:
            ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError) as error:
        raise CountLensError(f"no Ray cluster at {options.address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises OSError at once if nothing listens at the address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise CountLensError("the engine ray needs Ray: pip install 'countlens[ray]'") from error
    return ray
