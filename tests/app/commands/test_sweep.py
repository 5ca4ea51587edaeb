"""`countlens sweep`, as a user calls it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.commands.live_table import Board
from models.atomic import write_text, writing_failed
from training.config import EngineOptions
from training.run.folder import RunFolder
from training.sweep.engine import Event, train_run
from training.sweep.grid import SweepRun, read_grid
from training.sweep.manifest import Manifest

GRID = """
task = "mod10"
lengths = [5, 10]
n_layers = 1
d_model = 8
steps = 20
eval_every = 10
eval_rows = 8

[[cells]]
architecture = ["ape", "rnn"]
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A grid file in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(GRID)
    return path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains the runs of a sweep one after another in this process; the engines have tests of their own."""

    def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        for run in runs:
            yield Event(run, "started")
            outcome = train_run(manifest.folder(run).path, run.config)
            yield Event(run, outcome.kind, outcome.error)

    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: run_all)


def called(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> str:
    """What a command prints, on both streams."""
    try:
        main([str(arg) for arg in args])
        ended: object = 0
    except SystemExit as end:
        ended = end.code
    captured = capsys.readouterr()
    assert ended == code, captured.err
    return captured.out + captured.err


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_trains_all_writes_scores_and_does_nothing_twice(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = called(capsys, "sweep", grid)
    assert "2 of 2 runs finished, 0 failed" in out
    assert "finished mod10/rnn-1L-8d-5to10-20steps/seed0  IND" in out
    scores = Path("runs/tiny.scores.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in scores[1:]] == [
        "mod10/ape-1L-8d-5to10-20steps/seed0",
        "mod10/rnn-1L-8d-5to10-20steps/seed0",
    ]
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.safetensors")}
    assert "2 of 2 runs finished" in called(capsys, "sweep", "runs/tiny.jsonl")
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.safetensors")} == before
    status = called(capsys, "sweep", grid, "--status").splitlines()
    assert [line.split()[:3] for line in status] == [["0", "finished", "20/20"], ["1", "finished", "20/20"]]
    assert "nothing is left to train" in called(capsys, "sweep", grid, "--dry-run")


@pytest.mark.usefixtures("in_this_process")
def test_runs_whose_scores_are_known_can_be_left_out(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(capsys, "sweep", grid, "--only", "*rnn*")
    known = Path("known.csv")
    Path("runs/tiny.scores.csv").rename(known)
    elsewhere = ("sweep", grid, "--out", "elsewhere", "--skip-scored", known)
    assert "1 runs in 1 cells" in called(capsys, *elsewhere, "--dry-run")
    assert "1 of 1 runs finished" in called(capsys, *elsewhere)
    assert [path.name for path in Path("elsewhere/mod10").iterdir()] == ["ape-1L-8d-5to10-20steps"]
    assert "nothing is left to train" in called(capsys, *elsewhere, "--only", "*rnn*", code=2)
    *start, recipe = known.read_text().strip().split(",")
    known.write_text(",".join([*start, recipe[::-1]]))  # scores of another recipe
    assert "2 runs in 2 cells" in called(capsys, *elsewhere[:2], "--skip-scored", known, "--out", "new", "--dry-run")


def test_one_line_of_the_manifest_is_trained_for_a_job_array(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, "sweep", grid, "--index", 1)
    assert "1: mod10/rnn-1L-8d-5to10-20steps/seed0" in out
    assert "finished  IND" in out
    assert len(Path("runs/tiny.jsonl").read_text().splitlines()) == 2
    assert not Path("runs/mod10/ape-1L-8d-5to10-20steps").exists()
    assert "has lines 0 to 1" in called(capsys, "sweep", grid, "--index", 2, code=2)


@pytest.mark.usefixtures("in_this_process")
def test_an_array_job_that_fails_says_so_in_its_exit_code(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = Path("runs/mod10/ape-1L-8d-5to10-20steps/seed0")
    blocked.mkdir(parents=True)
    (blocked / "notes.txt").touch()
    assert "failed: " in called(capsys, "sweep", grid, "--index", 0, code=1)
    out = called(capsys, "sweep", grid, code=1)
    assert "1 of 2 runs finished, 1 failed" in out
    assert "is neither empty nor a run" in out


def test_a_dry_run_prints_time_and_cost_and_leaves_nothing(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, "sweep", grid, "--dry-run", "--gpu", "h100", "--price-per-core-hour", 0.05)
    assert "2 runs in 2 cells" in out
    assert "FLOP" in out
    assert "per core hour" in out
    assert "on one h100" in out
    assert "mod10/rnn-1L-8d-5to10-20steps " in out  # a line per cell
    assert not Path("runs").exists()
    assert "unknown GPU" in called(capsys, "sweep", grid, "--dry-run", "--gpu", "h10", code=2)


def test_axes_on_the_command_line_are_a_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    axes = "--task mod10 selective --architecture nope lstm --n-layers 1 2 --bos both --lengths 20to40 --seeds 2"
    lines = called(capsys, "sweep", *axes.split(), "--status").splitlines()
    assert len(lines) == 2 * 2 * 2 * 2 * 2
    assert lines[0].split()[-1] == "mod10/nope-1L-20to40/seed0"
    assert lines[-1].split()[-1] == "selective-bos/lstm-2L-20to40/seed1"


def test_every_option_of_train_is_an_axis_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    axes = "--task mod10 --position nope ape --steps 200 --lr 1e-3 5e-3 --causal False --tensorboard --seed 100 105"
    lines = called(capsys, "sweep", *axes.split(), "--status").splitlines()
    assert [line.split()[2:] for line in lines] == [
        ["0/200", f"mod10/{position}-2L-noncausal-200steps-lr{lr}/seed{seed}"]
        for position in ("nope", "ape")
        for lr in ("0.001", "0.005")
        for seed in (100, 105)
    ]


@pytest.mark.usefixtures("in_this_process")
def test_a_file_without_cells_is_trained_as_the_same_axes_are(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid.write_text(GRID.replace("[[cells]]", ""))
    assert "2 of 2 runs finished" in called(capsys, "sweep", grid)
    axes = "--task mod10 --lengths 5to10 --n-layers 1 --d-model 8 --steps 20 --eval-every 10 --eval-rows 8"
    assert "2 of 2 runs finished" in called(capsys, "sweep", *axes.split(), "--architecture", "ape", "rnn")
    assert Path("runs/sweep.jsonl").read_bytes() == Path("runs/tiny.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "what to sweep over"),
        ("tiny.toml --n-layers 2", "tiny.toml and axes such as --n-layers exclude each other"),
        ("--steps", "steps = [] gives no run"),
        ("--architecture ape --position rope", "architecture and position exclude each other"),
        ("tiny.toml --task mod10", "exclude each other"),
        ("missing.toml", "cannot read"),
        ("tiny.toml --only selective/*", "fits none of the runs"),
        ("--task mod10 --lengths 50", "as 50to100"),
        (
            "--task mod10 --architecture rop",
            "cell 1 (task = mod10, architecture = rop, seed = 0): unknown",
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_starts(
    grid: Path, capsys: pytest.CaptureFixture[str], args: str, message: str
) -> None:
    assert message in called(capsys, "sweep", *args.split(), code=2)
    assert not Path("runs").exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_part_of_a_sweep_can_be_trained_first(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 of 1 runs finished" in called(capsys, "sweep", grid, "--only", "mod10/rnn*")
    assert not Path("runs/mod10/ape-1L-8d-5to10-20steps").exists()


def test_the_live_table_says_what_runs_what_failed_and_how_long_it_takes(grid: Path) -> None:
    manifest = Manifest(Path("runs/tiny.jsonl"), tuple(read_grid(grid)))
    board = Board(manifest)
    assert "0 of 2 done, 0 running, 2 waiting, 0 failed, time left unknown yet" in board.headline()
    ape, rnn = manifest.runs
    board.note(Event(ape, "started"))
    metrics = manifest.folder(ape).path / "metrics.jsonl"
    manifest.folder(ape).create(manifest.folder(ape).path, ape.config)
    metrics.write_text(json.dumps({"step": 10, "seconds": 3.0, "ind": 50.0, "ood": 20.0}) + "\n")
    board.started -= 100.0  # half of one of two equal runs in 100 s
    board.sizes = dict.fromkeys(board.sizes, 1.0)
    assert round(board.seconds_left() or 0) == 300
    assert "0 of 2 done, 1 running, 1 waiting, 0 failed, about 5 min left" in board.headline()
    assert [list(column.cells) for column in board.table().columns][1:4] == [["10/20"], ["50.0"], ["20.0"]]
    manifest.folder(rnn).record_failure("boom\n")
    board.note(Event(rnn, "failed"))
    assert "1 failed" in board.headline()


def test_a_sweep_that_gets_sigterm_says_how_it_goes_on(
    grid: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        yield Event(runs[0], "started")
        signal.raise_signal(signal.SIGTERM)
        yield Event(runs[0], "finished")

    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: stop)
    assert "the same command goes on where it was" in called(capsys, "sweep", grid, code=130)


@pytest.mark.slow  # quick siblings: the test above, and those of a stop signal in tests/training/run/test_folder.py
def test_an_interrupted_sweep_saves_and_goes_on(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM to the driver alone, as a scheduler sends it."""
    grid.write_text(GRID.replace("steps = 20", "steps = 100000"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from app.cli import main; main()", "sweep", str(grid), "--workers", "1"]
    driver = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    state = Path("runs/mod10/ape-1L-8d-5to10-100000steps/seed0/state.safetensors")
    while not state.is_file():
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        time.sleep(0.05)
    driver.send_signal(signal.SIGTERM)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "the same command goes on where it was" in said
    assert "started" in called(capsys, "sweep", grid, "--status")


def test_a_sweep_on_a_full_disk_says_what_failed_in_its_exit_code(
    grid: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written below runs/mod10, so that the runs cannot even record their failures."""

    def full(path: Path, text: str) -> None:
        if Path("runs/mod10") in path.parents:
            raise writing_failed(path, OSError(errno.ENOSPC, "No space left on device"))
        write_text(path, text)

    def train_here(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        for run in runs:
            outcome = train_run(manifest.folder(run).path, run.config)
            yield Event(run, outcome.kind, outcome.error)

    monkeypatch.setattr("training.run.folder.write_text", full)
    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: train_here)
    out = called(capsys, "sweep", grid, code=1)
    assert "0 of 2 runs finished, 2 failed" in out
    assert "seed0: cannot write runs/mod10/ape-1L-8d-5to10-20steps/seed0/config.json: No space left" in out
    assert not list(Path("runs").rglob("error.txt"))
    assert "failed: cannot write" in called(capsys, "sweep", grid, "--index", 0, code=1)
    monkeypatch.undo()
    monkeypatch.chdir(grid.parent)
    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: train_here)
    assert "2 of 2 runs finished, 0 failed" in called(capsys, "sweep", grid)


@pytest.mark.slow
def test_workers_that_may_write_only_a_few_bytes_make_the_sweep_fail(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real workers under a limit of the operating system on the size of files."""
    assert "waiting" in called(capsys, "sweep", grid, "--status")
    Manifest(Path("runs/tiny.jsonl"), tuple(read_grid(grid))).write()
    # Python itself writes a few bytes to see which temporary folder can be used.
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); from app.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, "sweep", str(grid), "--workers", "1"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "0 of 2 runs finished, 2 failed" in done.stdout
    assert "File too large" in done.stdout


def test_one_damaged_run_does_not_hide_the_others(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = Manifest(Path("runs/tiny.jsonl"), tuple(read_grid(grid)))
    folder = RunFolder.create(manifest.folder(manifest.runs[0]).path, manifest.runs[0].config)
    (folder.path / "metrics.jsonl").write_text("oops\n")
    first, second = called(capsys, "sweep", grid, "--status").splitlines()
    assert first.split()[1] == "failed"
    assert "metrics.jsonl, line 1 is not an evaluation" in first
    assert second.split()[1] == "waiting"
