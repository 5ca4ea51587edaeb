"""Runs on disk: whatever stops one, it goes on and ends as if nothing had happened."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from models import files
from models.errors import CountLensError
from training import loop
from training.config import ModelOptions, TrainConfig
from training.loop import snapshot_steps, train
from training.presets import resolve
from training.run import RunFolder


def contents(folder: Path) -> dict[str, object]:
    """What a run left: file bytes, and metrics without the clock."""
    left: dict[str, object] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")
    }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    left["metrics"] = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    return left


class Killed(BaseException):
    """Stands for a kill: nothing between it and the end of the process runs, but for `finally`."""


def test_a_finished_run_holds_what_it_should(tmp_path: Path, tiny: TrainConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    scores = train(run, progress=False)
    assert run.finished
    assert {path.name for path in run.path.iterdir()} - {".lock"} == {
        *("config.json", "metrics.jsonl", "model.safetensors", "last.safetensors", "snapshots"),
    }
    assert [line["step"] for line in run.metrics()] == [4, 8, 12]
    assert set(run.metrics()[0]) == {"step", "seconds", "loss", "lr", "ind", "ood", "aux", "by_position"}
    assert len(run.metrics()[0]["by_position"]["ind"]) == 7
    assert run.config() == tiny
    steps = {int(path.stem.removeprefix("step-")) for path in (run.path / "snapshots").iterdir()}
    assert steps == snapshot_steps(12, 3) == {0, 1, 3, 12}
    assert train(run, progress=False) == scores


@pytest.mark.parametrize("family", ["transformer", "s4"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(
    tmp_path: Path, tiny: TrainConfig, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the first write, resumed and killed at the second one from there, and so on to the end."""
    if family == "s4":  # with dropout, whose random stream must go on too
        tiny = resolve(replace(tiny, model=ModelOptions(family="s4", n_layers=1, d_model=8, dropout=0.5)))
    whole = RunFolder.create(tmp_path / "whole", tiny)
    train(whole, progress=False)
    run = RunFolder.create(tmp_path / "killed", tiny)
    real_replace = os.replace
    kills = 0
    for allowed in range(100):
        left = [allowed]

        def replace_or_die(source: object, target: object, left: list[int] = left) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            real_replace(source, target)

        monkeypatch.setattr(files.os, "replace", replace_or_die)
        try:
            train(run, progress=False)
            break
        except Killed:
            kills += 1
    assert run.finished
    assert kills > 5
    assert contents(run.path) == contents(whole.path)


def test_sigkill_and_resume_give_bit_identical_files(tmp_path: Path, tiny: TrainConfig) -> None:
    longer = replace(tiny, optimiser=replace(tiny.optimiser, steps=400))
    whole, run = (RunFolder.create(tmp_path / name, longer) for name in ("whole", "killed"))
    train(whole, progress=False)
    for at_least in (8, 100):
        process = subprocess.Popen([sys.executable, "-m", "app.cli", "train", "--resume", str(run.path), "--quiet"])
        while process.poll() is None and not any(line["step"] >= at_least for line in run.metrics()):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not run.finished
    train(run, progress=False)
    assert contents(run.path) == contents(whole.path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_the_step_it_was_at(
    tmp_path: Path, tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run, whole = (RunFolder.create(tmp_path / name, tiny) for name in ("run", "whole"))
    real_loss, calls = loop.loss_of, []

    def interrupted(*args: object) -> object:
        calls.append(1)
        if len(calls) == 7:
            signal.raise_signal(number)
        return real_loss(*args)

    monkeypatch.setattr(loop, "loss_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(run, progress=False)
    assert run.load_state().step == 7
    monkeypatch.undo()
    train(run, progress=False)
    train(whole, progress=False)
    assert contents(run.path) == contents(whole.path)


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, tiny: TrainConfig) -> None:
    RunFolder.create(tmp_path / "run", tiny)
    with pytest.raises(CountLensError, match="already holds this run: use countlens train --resume"):
        RunFolder.create(tmp_path / "run", tiny)
    with pytest.raises(CountLensError, match="already holds another run"):
        RunFolder.create(tmp_path / "run", replace(tiny, seed=1))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("It was a dark and stormy night")
    with pytest.raises(CountLensError, match="is not empty and no run"):
        RunFolder.create(tmp_path / "thesis", tiny)
    with pytest.raises(CountLensError, match="holds no run"):
        RunFolder.open(tmp_path / "thesis")


def test_two_processes_never_train_one_run(tmp_path: Path, tiny: TrainConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    with run.locked(), pytest.raises(CountLensError, match="being trained by another process"):
        train(RunFolder(run.path), progress=False)


def test_a_full_disk_loses_nothing_that_was_saved(
    tmp_path: Path, tiny: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = (RunFolder.create(tmp_path / name, tiny) for name in ("run", "whole"))
    real_write, calls = Path.write_bytes, []

    def full(path: Path, content: bytes) -> int:
        calls.append(path)
        if len(calls) == 6:
            real_write(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CountLensError, match="free some space"):
        train(run, progress=False)
    assert not list(run.path.rglob("*.unfinished"))
    monkeypatch.undo()
    train(run, progress=False)
    train(whole, progress=False)
    assert contents(run.path) == contents(whole.path)


def test_snapshot_steps_are_log_spaced() -> None:
    assert snapshot_steps(1000, 0) == set()
    assert snapshot_steps(1000, 4) == {0, 1, 10, 100, 1000}
    assert snapshot_steps(1500, 1) == {0, 1, 1500}


@pytest.mark.parametrize(
    ("group", "changes", "message"),
    [
        ("optimiser", {"lr": "fast"}, "lr = 'fast': must be float"),
        ("optimiser", {"steps": None}, "it is not resolved"),
        ("hardware", {"threads": 0}, "threads = 0: must be at least 1"),
        ("model", {"d_model": 7}, "not divisible"),
        ("model", {"colour": 1}, "model has no setting colour"),
        ("data", {"task": 10}, "task = 10: must be str"),
    ],
)
def test_a_config_file_that_no_run_wrote_is_refused(
    tmp_path: Path, tiny: TrainConfig, group: str, changes: dict[str, object], message: str
) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    values = tiny.to_dict()
    (run.path / "config.json").write_text(json.dumps(values | {group: values[group] | changes}))
    with pytest.raises(CountLensError, match=rf"cannot read .*config\.json: .*{message}"):
        run.config()


@pytest.mark.parametrize("text", ["", "[]", "null", "{" * 100_000, '{"seed": NaN}', '{"data": 3}'], ids=lambda t: t[:9])
def test_a_config_file_that_is_no_config_is_refused(tmp_path: Path, tiny: TrainConfig, text: str) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    (run.path / "config.json").write_text(text)
    with pytest.raises(CountLensError, match=r"cannot read .*config\.json"):
        run.config()
