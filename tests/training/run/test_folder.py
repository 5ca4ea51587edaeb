"""Runs on disk: whatever stops one, it goes on and ends as if nothing had happened."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models import atomic
from models.checkpoint import load_counter
from models.errors import CountLensError
from models.header import read_info
from training.config import ModelOptions, RunConfig, TrainConfig
from training.evaluate import Scores, evaluate
from training.presets import resolve, task_of
from training.run import loop
from training.run.folder import BusyError, RunFolder
from training.run.loop import snapshot_steps, train
from training.run.state import TrainState

BEST_IS_NOT_LAST = 10  # a seed with which a tiny run is best before its last step


def contents(folder: Path) -> dict[str, object]:
    """The files that a run produced: their bytes, and the metrics without times."""
    left: dict[str, object] = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "metrics.jsonl")
    }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    left["metrics"] = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    return left


class Killed(BaseException):
    """Simulates a kill: nothing runs after it but `finally` blocks."""


def test_a_finished_run_holds_what_it_should(tmp_path: Path, tiny: RunConfig) -> None:
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
    tmp_path: Path, tiny: RunConfig, tiny_options: TrainConfig, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the first write, resumed and killed at the second one from there, and so on to the end."""
    if family == "s4":  # with dropout, whose random stream must go on too
        tiny = resolve(replace(tiny_options, model=ModelOptions(family="s4", n_layers=1, d_model=8, dropout=0.5)))
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

        monkeypatch.setattr(atomic.os, "replace", replace_or_die)
        try:
            train(run, progress=False)
            break
        except Killed:
            kills += 1
    assert run.finished
    assert kills > 5
    assert contents(run.path) == contents(whole.path)


@pytest.mark.slow  # quick sibling: test_signals_at_file_operations_random_kills_and_two_starters_end_byte_identical
def test_sigkill_and_resume_give_bit_identical_files(tmp_path: Path, tiny: RunConfig) -> None:
    longer = replace(tiny, optimiser=replace(tiny.optimiser, steps=400))
    whole, run = (RunFolder.create(tmp_path / name, longer) for name in ("whole", "killed"))
    train(whole, progress=False)
    for at_least in (8, 100):
        code = "from app.cli import main; main()"
        process = subprocess.Popen([sys.executable, "-c", code, "train", "--resume", str(run.path), "--quiet"])
        while process.poll() is None and not any(line["step"] >= at_least for line in run.metrics()):
            time.sleep(0.005)
        assert process.poll() is None  # it is killed while it trains
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not run.finished
    train(run, progress=False)
    assert contents(run.path) == contents(whole.path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_the_step_it_was_at(
    tmp_path: Path, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch, number: int
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


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path, tiny: RunConfig) -> None:
    RunFolder.create(tmp_path / "run", tiny)
    with pytest.raises(CountLensError, match="already holds this run: use countlens train --resume"):
        RunFolder.create(tmp_path / "run", tiny)
    with pytest.raises(CountLensError, match="already holds another run"):
        RunFolder.create(tmp_path / "run", replace(tiny, seed=1))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("It was a dark and stormy night")
    with pytest.raises(CountLensError, match="is neither empty nor a run"):
        RunFolder.create(tmp_path / "thesis", tiny)
    with pytest.raises(CountLensError, match="holds no run"):
        RunFolder.open(tmp_path / "thesis")


def test_two_processes_never_train_one_run(tmp_path: Path, tiny: RunConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    with run.locked(), pytest.raises(CountLensError, match="being trained by another process"):
        train(RunFolder(run.path), progress=False)


def test_a_full_disk_loses_nothing_that_was_saved(
    tmp_path: Path, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
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


def stopped(path: Path, config: RunConfig, step: int) -> RunFolder:
    """A run that was stopped right after it had saved the state of a step."""
    run = RunFolder.create(path, config)
    with pytest.MonkeyPatch.context() as patch:
        real_save = RunFolder.save_state

        def save_and_stop(folder: RunFolder, state: TrainState) -> None:
            real_save(folder, state)
            if state.step == step:
                raise KeyboardInterrupt

        patch.setattr(RunFolder, "save_state", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(run, progress=False)
    return run


def flip(path: Path, position: float = 0.9) -> None:
    """Changes one byte of a file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * position)] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("call", [1, 2])
def test_a_stop_during_the_final_evaluation_changes_nothing_in_the_end(
    tmp_path: Path, tiny: RunConfig, call: int
) -> None:
    """In the evaluation of the best checkpoint, and in that of the last one, which here is another."""
    config = replace(tiny, optimiser=replace(tiny.optimiser, lr=0.1), seed=BEST_IS_NOT_LAST)
    run, whole = (RunFolder.create(tmp_path / name, config) for name in ("run", "whole"))
    train(whole, progress=False)
    assert read_info(whole.best).step != read_info(whole.last).step
    real_scores, calls = loop.final_scores, []

    def interrupted(*args: Any) -> Scores:
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real_scores(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "final_scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(run, progress=False)
    assert not run.finished
    train(run, progress=False)
    assert contents(run.path) == contents(whole.path)


def test_best_and_last_carry_the_scores_that_their_files_give(tmp_path: Path, tiny: RunConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    train(run, progress=False)
    for path in (run.best, run.last):
        scores = evaluate(load_counter(path), task_of(tiny), tiny.data.policy)
        assert read_info(path).scores == scores.summary


def test_a_damaged_state_is_replaced_by_the_one_before_it(
    tmp_path: Path, tiny: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = RunFolder.create(tmp_path / "whole", tiny)
    train(whole, progress=False)
    run = stopped(tmp_path / "run", tiny, step=12)
    flip(run.path / "state.safetensors")
    train(run, progress=False)
    assert "its checksum does not match; going on from the previous state, of step 8" in capsys.readouterr().err
    assert contents(run.path) == contents(whole.path)


def test_two_damaged_states_are_an_error_whose_way_out_works(tmp_path: Path, tiny: RunConfig) -> None:
    whole = RunFolder.create(tmp_path / "whole", tiny)
    train(whole, progress=False)
    run = stopped(tmp_path / "run", tiny, step=8)
    for name in ("state.safetensors", "state.previous.safetensors"):
        flip(run.path / name)
    before = contents(run.path)
    with pytest.raises(CountLensError, match=r"there is no other state: .* remove everything in .* but config\.json"):
        train(run, progress=False)
    assert contents(run.path) == before
    for path in run.path.iterdir():
        if path.name != "config.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    train(run, progress=False)
    assert contents(run.path) == contents(whole.path)


def test_moments_of_another_shape_never_reach_the_optimiser(tmp_path: Path, tiny: RunConfig) -> None:
    run = stopped(tmp_path / "run", tiny, step=4)
    state = run.load_state()
    assert state is not None
    run.save_state(replace(state, tensors=state.tensors | {"optimiser.0.exp_avg": torch.zeros(1)}))
    (run.path / "state.previous.safetensors").unlink()
    with pytest.raises(
        CountLensError, match=r"its tensor optimiser\.0\.exp_avg is torch\.float32 \[1\], the run needs"
    ):
        train(run, progress=False)


@pytest.mark.parametrize("step", [*(pytest.param(step, marks=pytest.mark.slow) for step in (4, 8)), 12])
def test_damage_to_any_file_is_an_error_or_changes_nothing(tmp_path: Path, tiny: RunConfig, step: int) -> None:
    """Flips a byte, cuts, empties or removes each file of a stopped run."""
    whole = RunFolder.create(tmp_path / "whole", tiny)
    train(whole, progress=False)
    template = stopped(tmp_path / "stopped", tiny, step)
    damages: dict[str, Callable[[Path], object]] = {
        "flip in the header": lambda path: flip(path, 0.1),
        "flip in the tensors": flip,
        "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
        "remove": Path.unlink,
    }
    names = [path.relative_to(template.path) for path in template.path.rglob("*") if path.is_file()]
    refused = []
    for name in names:
        if name.name in (".lock", "config.json"):
            continue
        for kind, damage in damages.items():
            run = RunFolder(tmp_path / "damaged")
            shutil.copytree(template.path, run.path)
            damage(run.path / name)
            try:
                train(run, progress=False)
                assert contents(run.path) == contents(whole.path), (name, kind)
            except CountLensError as error:
                refused.append(str(error))
            shutil.rmtree(run.path)
    assert 0 < len(refused) < len(names) * len(damages)
    assert all("remove everything in" in error for error in refused)


def test_changed_settings_are_refused_for_a_run_that_was_begun(tmp_path: Path, tiny: RunConfig) -> None:
    run = stopped(tmp_path / "run", tiny, step=8)
    text = (run.path / "config.json").read_text()
    (run.path / "config.json").write_text(text.replace('"warmup_steps": 3', '"warmup_steps": 2'))
    with pytest.raises(CountLensError, match=r"saved with other settings than those in config\.json"):
        train(run, progress=False)


def test_a_bad_line_in_the_metrics_is_named_and_a_cut_last_line_is_left_out(tmp_path: Path, tiny: RunConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    for step in (4, 8, 12):
        run.append_metrics({"step": step, "seconds": 1.0})
    metrics = run.path / "metrics.jsonl"
    first, second, third = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(first + second + third[:9])
    assert [line["step"] for line in run.metrics()] == [4, 8]
    metrics.write_text(first + second + third.rstrip())
    assert [line["step"] for line in run.metrics()] == [4, 8, 12]
    for bad in (second[:9] + "\n", "\n", "3\n", '{"step": "8", "seconds": 1}\n', "[" * 100_000 + "\n"):
        for lines in (first + bad + third, first + bad):
            metrics.write_text(lines)
            with pytest.raises(
                CountLensError, match=r"metrics\.jsonl, line 2 is not an evaluation .* remove everything in"
            ):
                run.metrics()
            with pytest.raises(CountLensError, match=r"metrics\.jsonl, line 2"):
                run.forget_metrics_after(4)
            assert metrics.read_text() == lines


def test_a_folder_that_is_refused_keeps_all_its_files(tmp_path: Path, tiny: RunConfig) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.unfinished").write_text("It was a dark and stormy night")
    with pytest.raises(CountLensError, match="is neither empty nor a run"):
        RunFolder.create(folder, tiny)
    assert [path.name for path in folder.iterdir()] == ["chapter1.unfinished"]


def test_a_run_that_was_killed_while_it_was_created_is_created_again(tmp_path: Path, tiny: RunConfig) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".lock", "config.json.0123456789abcdef.unfinished", "error.txt"):
        (folder / name).touch()
    run = RunFolder.create(folder, tiny)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "config.json", "error.txt"]
    assert run.held_at() is None
    train(run, progress=False)
    assert run.held_at() is not None
    assert run.failure is None


def test_a_run_that_another_process_holds_is_busy_and_has_not_failed(tmp_path: Path, tiny: RunConfig) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    with run.locked():
        for attempt in (
            lambda: RunFolder(run.path).record_failure("boom\n"),
            lambda: train(RunFolder(run.path), progress=False),
        ):
            with pytest.raises(BusyError, match="being trained by another process"):
                attempt()
    assert run.failure is None
    with RunFolder(tmp_path / "new")._held(), pytest.raises(BusyError):
        RunFolder.create(tmp_path / "new", tiny)


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FINISHED, BUSY, INTERRUPTED = 0, 2, 130  # exit codes of children


def killing(folder: Path, plan: list[list[object]]) -> list[dict[str, Any]]:
    """Carries out a plan of kill_runs.py and checks that every run ended as the undisturbed one, byte for byte."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("kill_runs.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), json.dumps(plan)],
        env=env,
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole = contents(folder / "whole")
    assert {"model.safetensors", "last.safetensors", "snapshots/step-0000001.safetensors", "config.json"} < whole.keys()
    runs = [run for index in range(len(plan)) for run in (folder / str(index)).iterdir()]
    different = [run for run in runs if contents(run) != whole]
    assert not different, done.stderr
    return json.loads(done.stdout)


def check_killing(reports: list[dict[str, Any]], plan: list[list[Any]]) -> None:
    """Checks that the plan's kills took place, and that what came after them went well."""
    for report, (kind, *values) in zip(reports, plan, strict=True):
        if kind == "operations":
            number, first, stride = values
            ends = {-number} if number == signal.SIGKILL else {-number, INTERRUPTED}
            ended = sum(code in ends for code in report["endings"])
            assert len(report["endings"]) == len(range(first, report["operations"] + 1, stride))
            # A signal that only asks comes too late after the last step; a kill never does.
            assert ended == len(report["endings"]) if number == signal.SIGKILL else ended > 0.8 * len(report["endings"])
            assert set(report["endings"]) <= ends | {FINISHED}
            assert set(report["resumed"]) == {FINISHED}
        elif kind == "random":
            assert report["kills"] >= values[0]
            assert set(report["resumed"]) == {FINISHED}
        else:
            assert len(report["endings"]) == values[0]
            assert all(codes in ([FINISHED, FINISHED], [FINISHED, BUSY]) for codes in report["endings"])


def test_signals_at_file_operations_random_kills_and_two_starters_end_byte_identical(tmp_path: Path) -> None:
    plan: list[list[object]] = [["operations", number, 7 + 18 * i, 54] for i, number in enumerate(SIGNALS)]
    plan += [["random", 4, 0], ["starters", 2]]
    check_killing(killing(tmp_path, plan), plan)


@pytest.mark.slow
def test_signals_at_every_file_operation_end_byte_identical(tmp_path: Path) -> None:
    plan: list[list[object]] = [["operations", number, 1, 1] for number in SIGNALS]
    reports = killing(tmp_path, plan)
    check_killing(reports, plan)
    assert reports[0]["operations"] > 100


@pytest.mark.slow
def test_a_hundred_random_kills_and_forty_pairs_of_starters_end_byte_identical(tmp_path: Path) -> None:
    plan: list[list[object]] = [["random", 100, 1], ["starters", 40]]
    check_killing(killing(tmp_path, plan), plan)


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
    tmp_path: Path, tiny: RunConfig, group: str, changes: dict[str, object], message: str
) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    values = tiny.to_dict()
    (run.path / "config.json").write_text(json.dumps(values | {group: values[group] | changes}))
    with pytest.raises(CountLensError, match=rf"cannot read .*config\.json: .*{message}"):
        run.config()


@pytest.mark.parametrize("text", ["", "[]", "null", "{" * 100_000, '{"seed": NaN}', '{"data": 3}'], ids=lambda t: t[:9])
def test_a_config_file_that_is_no_config_is_refused(tmp_path: Path, tiny: RunConfig, text: str) -> None:
    run = RunFolder.create(tmp_path / "run", tiny)
    (run.path / "config.json").write_text(text)
    with pytest.raises(CountLensError, match=r"^cannot read \S+config\.json: .*Restore the file, or start a new run"):
        run.config()
