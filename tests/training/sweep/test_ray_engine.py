"""Sweeps on Ray: what the engine makes of a cluster's answers, and a real cluster of which a node is killed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from models.errors import CountLensError
from training.config import EngineOptions
from training.run.folder import RunFolder
from training.sweep import ray_engine
from training.sweep.engine import sweep, train_run
from training.sweep.grid import expand
from training.sweep.manifest import Manifest

TINY = {"task": "mod10", "lengths": [5, 10], "n_layers": 1, "d_model": 8, "eval_every": 20, "eval_rows": 8}


@pytest.mark.slow
def test_a_node_is_killed_and_the_sweep_finishes_whole(tmp_path: Path, cluster: Any) -> None:
    manifest = Manifest(tmp_path / "sweep.jsonl", tuple(expand([TINY | {"seeds": 4, "steps": 800}])))
    manifest.write()
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    events, running = [], set()
    interrupted: set[str] = set()
    for event in sweep(manifest, "ray", EngineOptions(address=cluster.address)):
        if event is None:
            if len(nodes) == 2 and len(running) == 2:
                interrupted = set(running)
                cluster.remove_node(nodes.pop(), allow_graceful=False)
            continue
        events.append((event.kind, event.run.name))
        (running.add if event.kind == "started" else running.discard)(event.run.name)
    assert len(nodes) == 1, "both nodes never worked at once"
    assert not manifest.unfinished()
    finished = [name for kind, name in events if kind == "finished"]
    assert sorted(finished) == sorted(run.name for run in manifest.runs)
    again = [name for name in interrupted if events.count(("started", name)) == 2]
    assert len(again) == 1, "the run of the killed node was not started again"
    run = next(run for run in manifest.runs if run.name == again[0])
    train_run(tmp_path / "undisturbed", run.config)
    for name, tensor in load_file(tmp_path / "undisturbed/last.safetensors").items():
        assert tensor.equal(load_file(manifest.folder(run).last)[name])


def test_a_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "sweep.jsonl", tuple(expand([TINY])))
    with pytest.raises(CountLensError, match="no Ray cluster at"):
        list(sweep(manifest, "ray", EngineOptions(address="127.0.0.1:1")))


class RayError(Exception):
    """Stands for Ray's own."""


class FakeCluster:
    """Ray's functions as the engine calls them. Jobs run in this process, each when the engine waits for it."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.settings: dict[str, float] = {}
        self.jobs: dict[int, tuple[Path, Callable[[], str]]] = {}
        self.largest_queue = 0
        self.deaths: list[Path] = []  # run folders whose worker dies more often than is allowed
        self.cancelled: list[int] = []

    def is_initialized(self) -> bool:
        return True

    def remote(self, **settings: float) -> Callable[..., Any]:
        self.settings = settings
        return lambda function: SimpleNamespace(remote=partial(self.submit, function))

    def submit(self, function: Callable[..., str], path: Path, config: Any) -> int:
        assert path.is_absolute()
        reference = len(self.jobs)
        self.jobs[reference] = path, partial(function, path, config)
        return reference

    def wait(self, references: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        self.largest_queue = max(self.largest_queue, len(references))
        return references[:num_returns], references[num_returns:]

    def get(self, reference: int) -> str:
        path, job = self.jobs[reference]
        if path in self.deaths:
            raise RayError
        return job()

    def cancel(self, reference: int) -> None:
        self.cancelled.append(reference)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: cluster)
    return cluster


def test_runs_go_to_the_cluster_and_one_whose_workers_keep_dying_is_a_failure(
    tmp_path: Path, fake: FakeCluster
) -> None:
    manifest = Manifest(tmp_path / "sweep.jsonl", tuple(expand([TINY | {"seeds": 3, "steps": 5}])))
    doomed = manifest.runs[1]
    fake.deaths = [manifest.folder(doomed).path.absolute()]
    options = EngineOptions(workers=2, retries=7, cpus=2.0, gpus=0.5)
    events = [event for event in sweep(manifest, "ray", options) if event]
    assert fake.settings == {"num_cpus": 2.0, "num_gpus": 0.5, "max_retries": 7}
    assert fake.largest_queue == 2
    kinds = {event.run.name: event.kind for event in events if event.kind != "started"}
    assert kinds == {run.name: "failed" if run == doomed else "finished" for run in manifest.runs}
    assert "died too often" in (manifest.folder(doomed).failure or "")
    assert all(manifest.folder(run).finished for run in manifest.runs if run != doomed)


def test_a_run_that_somebody_else_trains_is_tried_again(
    tmp_path: Path, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(ray_engine, "TICK_SECONDS", 0.0)
    manifest = Manifest(tmp_path / "sweep.jsonl", tuple(expand([TINY | {"steps": 5}])))
    (run,) = manifest.runs
    events = sweep(manifest, "ray")
    folder = RunFolder.create(manifest.folder(run).path, run.config)
    with folder.locked():
        while (event := next(events)) is None or event.kind != "busy":
            pass
    assert [event.kind for event in events if event][-1] == "finished"
    assert folder.finished


def test_a_stopped_sweep_cancels_what_it_has_submitted(tmp_path: Path, fake: FakeCluster) -> None:
    manifest = Manifest(tmp_path / "sweep.jsonl", tuple(expand([TINY | {"seeds": 3, "steps": 5}])))
    events = sweep(manifest, "ray")
    while (event := next(events)) is None or event.kind != "finished":
        pass
    events.close()
    assert fake.cancelled == [1, 2]
