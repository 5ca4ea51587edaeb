"""Shared by all tests: shapes in signatures are checked while the tests run.

These checks take about as long as what they check. Without the slow tests they are therefore made only once where it
is enough: in the first case of a test that has many, and not in the tests of the app, which call what the tests of the
other rooms have checked.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

install_import_hook(["models", "training", "probes"], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)

APP_TESTS = Path(__file__).parent / "app"
UNCHECKED = pytest.StashKey[bool]()  # of a test item: whether it runs without shape checks


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_quick = config.option.markexpr == "not slow"
    seen: set[tuple[str, str]] = set()
    for item in items:
        case_of = (item.parent.nodeid if item.parent else "", getattr(item, "originalname", item.name))
        item.stash[UNCHECKED] = is_quick and (case_of in seen or item.path.is_relative_to(APP_TESTS))
        seen.add(case_of)


@pytest.hookimpl(tryfirst=True)  # before fixtures are set up
def pytest_runtest_setup(item: pytest.Item) -> None:
    jaxtyping_config.update("jaxtyping_disable", item.stash[UNCHECKED])


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
