"""Sweeps on a real Ray cluster of two nodes on this machine, of which one is killed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from models.errors import CountLensError
from training.grid import expand
from training.manifest import Manifest
from training.sweep import EngineOptions, sweep, train_run

ray = pytest.importorskip("ray")
TINY = {"task": "mod10", "lengths": [5, 10], "n_layers": 1, "d_model": 8, "eval_every": 20, "eval_rows": 8}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that trains nothing, and no worker node yet."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # other tests run beside this one
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


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
