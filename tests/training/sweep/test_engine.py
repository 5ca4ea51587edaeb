"""Sweeps: nothing is lost and nothing done twice, whatever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from safetensors.torch import load_file

from models.errors import CountLensError
from training.config import EngineOptions, TrainConfig
from training.presets import resolve
from training.run import loop
from training.run.folder import BusyError, RunFolder
from training.sweep.engine import AttemptEnd, sweep, train_run
from training.sweep.grid import expand
from training.sweep.manifest import Manifest, status_of

TINY = {
    "task": "mod10",
    "lengths": [5, 10],
    "n_layers": 1,
    "d_model": 8,
    "eval_every": 20,
    "eval_rows": 8,
}
DRIVER = """
import sys
from pathlib import Path
from training.sweep.manifest import Manifest
from training.config import EngineOptions
from training.sweep.engine import sweep
if __name__ == "__main__":
    for event in sweep(Manifest.read(Path(sys.argv[1])), options=EngineOptions(workers=int(sys.argv[2]))):
        if event is not None:
            print(event.kind, event.run.name, flush=True)
"""


HAS_PROC = Path("/proc/self/task").is_dir()
needs_proc = pytest.mark.skipif(not HAS_PROC, reason="finds the workers through /proc")
Events = list[tuple[str, str]]  # kind and name of the run


def manifest_of(folder: Path, **axes: object) -> Manifest:
    manifest = Manifest(folder / "sweep.jsonl", tuple(expand([TINY | axes])))
    manifest.write()
    return manifest


def weights(manifest: Manifest) -> dict[str, bytes]:
    """Every tensor of every run's best and last checkpoint."""
    found = {}
    for run in manifest.runs:
        folder = manifest.folder(run)
        for path in (folder.best, folder.last):
            for name, tensor in load_file(path).items():
                found[f"{run.name} {path.name} {name}"] = tensor.numpy().tobytes()
    return found


def start_driver(manifest: Manifest, workers: int = 2) -> subprocess.Popen[str]:
    script = manifest.path.parent / "driver.py"
    script.write_text(DRIVER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(manifest.path), str(workers)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lines_until(driver: subprocess.Popen[str], kind: str) -> Iterator[str]:
    assert driver.stdout is not None
    for line in driver.stdout:
        yield line
        if line.startswith(kind):
            return


def wait_for(condition: object, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@needs_proc
def test_workers_end_with_a_killed_driver_and_leave_what_is_done(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, steps=[5, 1_000_000])
    short, endless = manifest.runs
    driver = start_driver(manifest, workers=1)
    list(lines_until(driver, "finished"))
    wait_for(lambda: manifest.folder(endless).load_state() is not None)
    (worker,) = (pid for pid in children(driver.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes())
    driver.kill()
    driver.wait()
    wait_for(lambda: not _alive(worker))
    assert manifest.folder(short).finished
    assert manifest.unfinished() == [endless]
    wait_for(lambda: _is_free(manifest.folder(endless)))  # a dead process may hold its files a moment longer
    assert manifest.folder(endless).load_state().step > 0


def _is_free(run: RunFolder) -> bool:
    try:
        with run.locked():
            return True
    except BusyError:
        return False


@pytest.mark.slow
@needs_proc
def test_a_killed_driver_and_a_killed_worker_change_nothing(tmp_path: Path) -> None:
    """SIGKILL of the driver, then of a worker: every run ends with the weights of an undisturbed sweep."""
    axes = {"seeds": 4, "steps": 1500}
    disturbed, whole = manifest_of(tmp_path / "disturbed", **axes), manifest_of(tmp_path / "whole", **axes)

    driver = start_driver(disturbed)
    list(lines_until(driver, "finished"))
    wait_for(lambda: any(status.state == "started" and status.step > 0 for _, status in disturbed.statuses()))
    workers = [pid for pid in children(driver.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(_alive(pid) for pid in workers))
    done = {run.name: disturbed.folder(run).last.stat() for run in disturbed.runs if disturbed.folder(run).finished}
    assert 1 <= len(done) < 4

    driver = start_driver(disturbed)
    (first,) = lines_until(driver, "started")
    name = first.split()[1]
    assert name not in done
    run = next(run for run in disturbed.runs if run.name == name)
    lock = disturbed.folder(run).path / ".lock"
    wait_for(lambda: any(_holds(pid, lock) for pid in children(driver.pid)))
    os.kill(next(pid for pid in children(driver.pid) if _holds(pid, lock)), signal.SIGKILL)
    assert driver.stdout is not None
    rest = driver.stdout.read().splitlines()
    assert driver.wait() == 0

    assert f"lost {name}" in rest
    counts = Counter(line.split()[1] for line in rest if line.startswith("finished"))
    assert counts == {run.name: 1 for run in disturbed.runs if run.name not in done}
    for name, before in done.items():
        assert (disturbed.path.parent / name / "last.safetensors").stat().st_mtime_ns == before.st_mtime_ns
    assert not disturbed.unfinished()
    for _ in sweep(whole, options=EngineOptions(workers=2)):
        pass
    assert weights(disturbed) == weights(whole)
    assert list(sweep(whole)) == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def _holds(pid: int, path: Path) -> bool:
    try:
        return any(os.readlink(link) == str(path) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Events]:
    """A sweep and its events. One run's folder is blocked by a foreign file, one run is first trained by another
    process, one is undisturbed; and where there is /proc, a fourth run's worker is killed (the last of the manifest).

    One sweep for several tests: a worker takes seconds to import torch.
    """
    manifest = manifest_of(tmp_path_factory.mktemp("sweep"), steps=[5, 6, 7] + [1_000_000] * HAS_PROC)
    blocked, held, _, *endless = manifest.runs
    manifest.folder(blocked).path.mkdir(parents=True)
    (manifest.folder(blocked).path / "notes.txt").write_text("somebody's own")
    events: Events = []
    with ExitStack() as other_process:
        other_process.enter_context(RunFolder.create(manifest.folder(held).path, held.config).locked())
        for event in sweep(manifest, options=EngineOptions(workers=1, retries=0)):
            events += [(event.kind, event.run.name)] if event else []
            if ("busy", held.name) in events:
                other_process.close()
            for run in endless:
                kill_trainer(manifest.folder(run))
    return manifest, events


def kill_trainer(run: RunFolder) -> None:
    """Kills the child process that trains a run, if one does."""
    for pid in children(os.getpid()):
        if _holds(pid, run.path / ".lock"):
            os.kill(pid, signal.SIGKILL)


def kinds_of(events: Events, name: str) -> list[str]:
    return [kind for kind, run in events if run == name]


def test_a_failing_run_is_recorded_and_the_others_go_on(troubled: tuple[Manifest, Events]) -> None:
    manifest, events = troubled
    failing, _, undisturbed, *_ = manifest.runs
    assert kinds_of(events, failing.name) == ["started", "failed"]
    assert kinds_of(events, undisturbed.name) == ["started", "finished"]
    blocked = manifest.folder(failing)
    status = status_of(blocked, failing.config)
    assert status.state == "failed"
    assert "is neither empty nor a run" in (status.error or "")
    assert failing in manifest.unfinished()
    (blocked.path / "notes.txt").unlink()
    (blocked.path / "error.txt").unlink()
    assert train_run(blocked.path, failing.config).kind == "finished"
    assert failing not in manifest.unfinished()


def test_a_run_that_somebody_else_trains_is_waited_for(troubled: tuple[Manifest, Events]) -> None:
    manifest, events = troubled
    kinds = kinds_of(events, manifest.runs[1].name)
    assert kinds[:2] == ["started", "busy"]
    assert kinds[-2:] == ["started", "finished"]


@needs_proc
def test_a_run_whose_worker_dies_is_given_up_and_the_others_go_on(troubled: tuple[Manifest, Events]) -> None:
    manifest, events = troubled
    endless = manifest.runs[-1]
    assert kinds_of(events, endless.name) == ["started", "failed"]
    assert "died 1 time" in (manifest.folder(endless).failure or "")
    assert manifest.folder(manifest.runs[1]).finished  # by the worker that took the dead one's place


def test_a_crash_inside_training_is_written_down_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(tmp_path, steps=5)
    (run,) = manifest.runs

    def explode(*args: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(loop, "loss_of", explode)
    outcome = train_run(manifest.folder(run).path, run.config)
    assert (outcome.kind, (outcome.error or "").splitlines()[-1]) == ("failed", "ZeroDivisionError: planted")
    assert status_of(manifest.folder(run), run.config).error == "ZeroDivisionError: planted"
    assert "in explode" in (manifest.folder(run).failure or "")
    monkeypatch.undo()
    assert train_run(manifest.folder(run).path, run.config) == AttemptEnd("finished")
    assert status_of(manifest.folder(run), run.config).state == "finished"


@pytest.mark.slow  # quick sibling: test_a_run_whose_worker_dies_is_given_up_and_the_others_go_on
@needs_proc
def test_a_worker_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, steps=[1_000_000, 5])
    endless, short = manifest.runs
    events: Events = []
    for event in sweep(manifest, options=EngineOptions(workers=1, retries=1)):
        events += [(event.kind, event.run.name)] if event else []
        kill_trainer(manifest.folder(endless))
    assert kinds_of(events, endless.name) == ["started", "lost", "started", "failed"]
    assert ("finished", short.name) in events
    assert "died 2 time" in (manifest.folder(endless).failure or "")


def test_a_sweep_over_runs_of_other_settings_is_refused(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, steps=5)
    RunFolder.create(manifest.folder(manifest.runs[0]).path, resolve(TrainConfig(seed=5)))
    with pytest.raises(CountLensError, match="was trained with other settings"):
        manifest.check()


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, architecture=["ape", "spe"], seeds=2)
    assert Manifest.read(manifest.path) == manifest
    assert len(manifest.path.read_text().splitlines()) == 4
    manifest.path.write_text('{"name": 3}\n')
    with pytest.raises(CountLensError, match="line 1 is not a run of a sweep"):
        Manifest.read(manifest.path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"name": "a/seed0", "config": {"seed": -1}}', r"line 1 is not a run.*seed = -1: must be at least 0"),
        ('{"name": "a/seed0", "config": {"optimiser": {"lr": NaN}}}', "line 1 is not a run of a sweep"),
        ('{"name": 3, "config": {}}', "name = 3: must be str"),
        ('{"name": "a\\u0000b", "config": {}}', "is not the name of a run"),
        ('{"name": "a", "config": {}, "colour": 1}', "a line has no setting colour"),
        ("[" * 100_000, "line 1 is not a run of a sweep"),
        ("3", "a line must be an object with named values, not 3"),
        ("{}\n" * 5001, "5,001 runs, more than 5,000"),
    ],
    ids=lambda value: value[:40],
)
def test_a_manifest_with_a_bad_line_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "zoo.jsonl").write_text(line)
    with pytest.raises(CountLensError, match=message):
        Manifest.read(tmp_path / "zoo.jsonl")


def test_a_device_is_no_manifest() -> None:
    with pytest.raises(CountLensError, match="not a regular file"):
        Manifest.read(Path("/dev/zero"))


def test_an_unknown_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="unknown engine 'loca': did you mean local"):
        list(sweep(manifest_of(tmp_path, steps=5), "loca"))
