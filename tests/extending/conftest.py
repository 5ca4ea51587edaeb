"""Tests here run in the house with what docs/extending.md adds to it."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from overlay import extended

from app.cli import main

ROOT = Path(__file__).resolve().parents[2]
collect_ignore_glob = ["house/*", "alibi.py", "entries.py"]


@pytest.fixture(autouse=True, scope="module")
def extended_house() -> Iterator[None]:
    """Adds it all before the first test of a file, and takes it away after the last."""
    with extended():
        yield


TRAINED: list[Path] = []  # once per process, for all files here


@pytest.fixture(scope="module")
def runs(extended_house: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with parity/gru: a GRU that was trained on parity."""
    if not TRAINED:
        folder = tmp_path_factory.mktemp("runs")
        what = "--task parity --family gru --train-length 5 --ood-length 10 --d-model 32 --embed-std 1"
        how = "--steps 120 --lr 0.02 --warmup-steps 5 --eval-every 60 --eval-rows 32 --quiet"
        main(["train", *what.split(), *how.split(), "--out", str(folder / "parity/gru")])
        TRAINED.append(folder)
    return TRAINED[0]


@pytest.fixture
def countlens(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command and returns what it prints."""

    def run(*arguments: object) -> str:
        main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return run


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a page of an explorer that was started with a folder, as an AppTest that has run."""
    from streamlit.testing.v1 import AppTest

    from app.explorer.registry import PAGES

    # A script that is run by AppTest becomes `__main__`, which processes that other tests spawn would then run again.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def open_(folder: Path, path: str, **parameters: str) -> AppTest:
        monkeypatch.setattr(sys, "argv", ["visit.py", "--folder", str(folder)])
        app = AppTest.from_file(str(ROOT / "app/visit.py"), default_timeout=120)
        app.query_params.update(parameters)
        app.run()
        if path != next(iter(PAGES)):
            app.switch_page(PAGES[path].script)
            app.run()
        assert not app.exception
        return app

    return open_


@pytest.fixture
def figures() -> Callable[[Any], list[dict[str, Any]]]:
    """The figures on a page, as plotly's JSON."""
    return lambda app: [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
