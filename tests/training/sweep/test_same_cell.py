"""The command that trains more seeds trains the same thing."""

import shlex
from dataclasses import replace
from unittest.mock import patch

import pytest

from app.cli import main
from models.find import SHIPPED, named_counters
from models.header import read_info
from training.config import RunConfig, TrainConfig
from training.presets import resolve
from training.sweep.grid import SweepRun
from training.sweep.same_cell import sweep_line


def runs_of(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> list[SweepRun]:
    """The runs that a command line would train."""
    monkeypatch.chdir(str(tmp_path))
    seen: list[SweepRun] = []

    def note(manifest: object, *args: object) -> object:
        seen.extend(manifest.runs)  # type: ignore[attr-defined]
        return (event for event in ())

    with patch("app.commands.sweep.sweep", note), pytest.raises(SystemExit):  # no run is trained: all "failed"
        main([*shlex.split(line)[1:], "--quiet"])
    return seen


@pytest.mark.parametrize(
    "name", ["mod10/ape-2L", "mod10-bos/rope-4L", "first_tok_heterogeneous/nope-1L-noncausal", "selective-bos/ape-1L"]
)
def test_the_line_trains_the_same_cell_with_other_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (path for counter, path in named_counters((SHIPPED,)) if counter.startswith(f"{name}/"))
    training = read_info(path).training
    assert training is not None
    runs = runs_of(sweep_line(training, [7, 11]), monkeypatch, tmp_path)
    assert [run.name for run in runs] == [f"{name}/seed7", f"{name}/seed11"]
    assert all(learnt(run.config) == learnt(resolve(TrainConfig.from_dict(training))) for run in runs)


def learnt(config: RunConfig) -> RunConfig:
    """The config without its seed, its device and what it writes down."""
    usual = resolve(TrainConfig())
    return replace(config, seed=0, record=usual.record, hardware=usual.hardware)


def test_what_the_preset_gives_is_left_out() -> None:
    config = resolve(TrainConfig()).to_dict()
    assert sweep_line(config, [1]) == "countlens sweep --task mod10 --architecture ape --seed 1"
    config["optimiser"]["lr"] = 0.5
    assert sweep_line(config, [1]) == "countlens sweep --task mod10 --architecture ape --lr 0.5 --seed 1"
