"""Shared by all tests: shapes in signatures are checked while the tests run.

These checks take as long as what they check, or longer. `make test-all` makes them in every test; `make test` in the
first test of each file, and not in the tests of the app and of the accelerator, which call what the tests of the other
rooms have checked. Tests marked `unchecked` make the same calls as a quick sibling, only many more of them.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

if "tests.accelerator.device" not in sys.modules:  # seconds for each process that imports all rooms
    install_import_hook(["models", "training", "probes"], "beartype.beartype")

import torch

torch.set_num_threads(1)

APP_TESTS = Path(__file__).parent / "app"
UNCHECKED = pytest.StashKey[bool]()  # of a test item: whether it runs without shape checks


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_quick = config.option.markexpr == "not slow"
    seen: set[Path] = set()
    for item in items:
        is_repetition = item.get_closest_marker("unchecked") is not None
        is_checked_elsewhere = item.path in seen or item.path.is_relative_to(APP_TESTS)
        item.stash[UNCHECKED] = is_repetition or (is_quick and is_checked_elsewhere)
        seen.add(item.path)


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
