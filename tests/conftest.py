"""Shared by all tests: with slow tests, or with --shapes, shapes in signatures are checked while the tests run.

The checks make the tests of probes take two to four times as long, even where they are switched off again. So `make
test-all` has them everywhere, and `make test` in the files that tests/test_shapes.py names.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shapes", action="store_true", help="check shapes in signatures, as with slow tests")


@pytest.hookimpl(tryfirst=True)  # before anything imports the rooms
def pytest_configure(config: pytest.Config) -> None:
    on_accelerator = "tests.accelerator.device" in sys.modules  # what runs there is checked on the CPU
    if config.option.shapes or (config.option.markexpr != "not slow" and not on_accelerator):
        from jaxtyping import install_import_hook

        install_import_hook(["models", "training", "probes"], "beartype.beartype")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest file first, so that at the end no process is idle while another one runs it."""
    items.sort(key=lambda item: item.path.name != "test_recipes.py")


@pytest.hookimpl(optionalhook=True)  # a hook of xdist, which may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, but all tests in a browser run in one process: one browser and one server are enough."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class BrowserTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "browser" if "browser" in nodeid else super()._split_scope(nodeid)

    return BrowserTogether(config, log)


@pytest.fixture
def generator() -> torch.Generator:
    """A source of randomness that is the same in every run."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def make_run() -> Callable[..., Any]:
    """Makes a run folder that looks trained, with the scores that a test wants it to have."""
    from models.checkpoint import save_counter
    from models.families import build_counter
    from training.config import TrainConfig
    from training.presets import model_config, resolve
    from training.run.folder import RunFolder
    from training.run.loop import describe_checkpoint

    def make(path: Path, options: TrainConfig, ind: float, ood: float, finished: bool = True) -> RunFolder:
        config = resolve(options)
        run = RunFolder.create(path, config)
        run.append_metrics({"step": 3, "seconds": 12.34, "ind": ind, "ood": ood})
        scores, last_scores = {"ind": ind, "ood": ood}, {"ind": ind, "ood": ood - 1}
        best, last = (describe_checkpoint(config, 3, each) for each in (scores, last_scores))
        counter = build_counter(model_config(config), torch.Generator().manual_seed(config.seed))
        save_counter(run.best, counter, replace(best, last_scores=last_scores))
        if finished:
            save_counter(run.last, counter, last)
        return run

    return make


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster with a head that trains nothing, and no worker node yet."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # other tests run beside this one
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()
