"""A study that was stopped goes on: nothing is trained or measured twice, and half a line is no line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_study import toy_study

from models.errors import CountLensError
from probes.studies.conduct import StudyFolder, conduct
from probes.studies.registry import STUDIES
from probes.studies.study import Row
from training.config import EngineOptions
from training.run.folder import RunFolder
from training.sweep.engine import Event, train_run
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of runs as they are trained, one after another in this process; the engines have tests of their own."""
    names: list[str] = []

    def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        for run in runs:
            outcome = train_run(manifest.folder(run).path, run.config)
            names.append(run.name)
            yield Event(run, outcome.kind, outcome.error)

    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: run_all)
    return names


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The toy study in the registry, and the folders that it measures."""
    names: list[str] = []
    study = toy_study()

    def measure(run: RunFolder) -> Row:
        names.append(run.path.as_posix())
        return study.measure(run)

    monkeypatch.setitem(STUDIES, "toy", replace(study, measure=measure))
    return names


def finish(out: Path) -> StudyFolder:
    folder = StudyFolder.below(out, "toy", quick=False)
    for _ in conduct(folder):
        pass
    return folder


def test_a_study_trains_and_measures_every_run_once(tmp_path: Path, trained: list[str], measured: list[str]) -> None:
    result = finish(tmp_path).result()
    assert len(trained) == len(measured) == 4
    assert (len(result.rows), result.missing, result.status) == (4, {}, "supported")
    assert set(result.rows[0]) == {"run", "seed", "lr", "task", "ind", "weird"}
    assert result.rows[0]["weird"] is None
    again = finish(tmp_path).result()
    assert len(trained) == len(measured) == 4
    assert again == result


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path: Path, trained: list[str], measured: list[str]) -> None:
    folder = StudyFolder.below(tmp_path, "toy", quick=False)
    events = conduct(folder)
    next(events)  # one run is trained and measured
    events.close()
    assert len(folder.rows()) == 1
    partial = folder.result()
    assert partial.size == "1 of 4 runs, 1 seeds"
    assert set(partial.missing.values()) == {"not finished"}
    assert partial.claims[0].estimate is None
    finish(tmp_path)
    assert len(trained) == len(measured) == 4


def test_a_study_goes_on_elsewhere_with_its_measured_lines_alone(
    tmp_path: Path, trained: list[str], measured: list[str]
) -> None:
    here = StudyFolder.below(tmp_path / "here", "toy", quick=False)
    events = conduct(here)
    next(events)  # one run is trained and measured
    events.close()
    there = tmp_path / "there/toy"
    there.mkdir(parents=True)
    (there / "measured.jsonl").write_bytes((here.path / "measured.jsonl").read_bytes())
    assert len(finish(tmp_path / "there").result().rows) == 4
    assert len(trained) == len(measured) == 4
    assert len(list(there.rglob("config.json"))) == 3


def test_a_line_that_a_kill_cut_short_is_measured_again(
    tmp_path: Path, trained: list[str], measured: list[str]
) -> None:
    whole = finish(tmp_path).result()
    path = tmp_path / "toy/measured.jsonl"
    path.write_text(path.read_text()[:-30])
    assert len(StudyFolder.below(tmp_path, "toy", quick=False).rows()) == 3
    assert finish(tmp_path).result() == whole
    assert (len(trained), len(measured)) == (4, 5)
    assert len(path.read_text().splitlines()) == 4


def test_lines_of_another_version_or_of_another_checkpoint_are_measured_again(
    tmp_path: Path, trained: list[str], measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finish(tmp_path)
    monkeypatch.setitem(STUDIES, "toy", replace(STUDIES["toy"], version=2))
    finish(tmp_path)
    assert (len(trained), len(measured)) == (4, 8)
    runs = folder.manifest.runs
    other = folder.manifest.folder(runs[0]).last
    other.write_bytes(folder.manifest.folder(runs[1]).last.read_bytes())
    assert len(StudyFolder.below(tmp_path, "toy", quick=False).rows()) == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ind": ', '"ind": "many", "extra": ', "'ind' = 'many', not a number of this study: remove that file"),
        ('"weird"', '"odd"', "'odd' = None, not a number of this study: remove that file"),
        ('"version": 1', '"version": "1"', "version = '1': must be int"),
        ('{"run"', '{{"run"', "line 1"),
    ],
)
def test_a_damaged_table_of_runs_is_an_error_with_the_line_or_the_way_out(
    tmp_path: Path, trained: list[str], measured: list[str], old: str, new: str, message: str
) -> None:
    path = finish(tmp_path).path / "measured.jsonl"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(CountLensError, match=message):
        finish(tmp_path)


def test_settings_in_the_table_are_those_of_the_runs_whatever_the_file_says(
    tmp_path: Path, trained: list[str], measured: list[str]
) -> None:
    folder = finish(tmp_path)
    before, path = folder.result(), folder.path / "measured.jsonl"
    path.write_text(path.read_text().replace('"lr": 0.1, ', "").replace('"task": "mod3"', '"task": 7.0'))
    assert finish(tmp_path).result().claims == before.claims
    assert len(measured) == 4


def test_a_manifest_of_any_bytes_is_written_anew(tmp_path: Path, trained: list[str], measured: list[str]) -> None:
    path = finish(tmp_path).path / "runs.jsonl"
    sound = path.read_bytes()
    path.write_bytes(sound[:-5] + b"\xff\xfe\n\n\n")
    finish(tmp_path)
    assert path.read_bytes() == sound


def test_a_run_that_cannot_be_measured_is_named_and_stops_no_other(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study()

    def measure(run: RunFolder) -> Row:
        if run.path.name == "seed1":
            raise CountLensError("its weights are not finite")
        return study.measure(run)

    monkeypatch.setitem(STUDIES, "toy", replace(study, measure=measure))
    result = finish(tmp_path).result()
    assert len(result.rows) == 2
    assert set(result.missing.values()) == {"its weights are not finite"}


def test_a_study_without_a_finished_run_has_no_result(tmp_path: Path, measured: list[str]) -> None:
    with pytest.raises(CountLensError, match=r"no run of the study toy is finished in .*: not finished"):
        StudyFolder.below(tmp_path, "toy", quick=False).result()


def test_a_quick_study_has_a_folder_of_its_own(tmp_path: Path, measured: list[str]) -> None:
    quick = StudyFolder.below(tmp_path, "toy", quick=True)
    assert quick.path == tmp_path / "toy-quick"
    assert quick.manifest.runs[0].config.optimiser.steps == 2


SCRIPT = """
import sys; sys.path.insert(0, {helpers!r})
from toy_study import toy_study
from probes.studies.registry import STUDIES
STUDIES["toy"] = toy_study(seeds=6)
if __name__ == "__main__":
    from app.cli import main
    main(["study", "toy", "--out", {out!r}, "--workers", "1"])
"""


@pytest.mark.slow
def test_a_killed_study_ends_with_the_same_files(tmp_path: Path) -> None:
    helpers = Path(__file__).parents[2] / "helpers"
    results = []
    for name, is_killed in (("whole", False), ("killed", True)):
        script = tmp_path / f"{name}.py"
        script.write_text(SCRIPT.format(helpers=str(helpers), out=str(tmp_path / name)))
        lines = tmp_path / name / "toy/measured.jsonl"
        if is_killed:
            process = subprocess.Popen([sys.executable, script], start_new_session=True, stderr=subprocess.DEVNULL)
            while not lines.is_file() or len(lines.read_text().splitlines()) < 3:
                assert process.poll() is None
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert not (tmp_path / name / "toy/result.json").exists()
        subprocess.run([sys.executable, script], check=True, capture_output=True)
        results.append((tmp_path / name / "toy/result.json").read_text())
    assert results[0] == results[1]


@pytest.mark.slow
def test_two_studies_on_a_cluster_of_which_a_node_is_killed_end_whole(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    study = toy_study()
    for name, steps in (("short", 400), ("long", 500)):
        monkeypatch.setitem(STUDIES, name, replace(study, cells=tuple(cell | {"steps": steps} for cell in study.cells)))
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    folders = [StudyFolder.below(tmp_path, name, quick=False) for name in ("short", "long")]
    # A run at a time of each study: every node works for one of them.
    options = EngineOptions(address=cluster.address, workers=1)
    streams = {folder.name: conduct(folder, "ray", options) for folder in folders}
    started: list[tuple[str, str]] = []
    running: set[tuple[str, str]] = set()
    interrupted: set[tuple[str, str]] = set()
    while streams:
        for name, stream in list(streams.items()):
            event = next(stream, "end")
            if event == "end":
                del streams[name]
            elif isinstance(event, Event) and event.kind == "started":
                started.append((name, event.run.name))
                running.add(started[-1])
            elif isinstance(event, Event):
                running.discard((name, event.run.name))
        if len(running) == len(nodes) == 2:
            interrupted = set(running)
            cluster.remove_node(nodes.pop(), allow_graceful=False)
    assert {name for name, _ in interrupted} == {"short", "long"}, "both studies never ran at once"
    assert [started.count(run) for run in sorted(interrupted)].count(2) == 1, "no run was started again"
    for folder in folders:
        result = folder.result()
        assert (len(result.rows), result.missing) == (4, {})
        undisturbed = StudyFolder.below(tmp_path / "undisturbed", folder.name, quick=False)
        for run in undisturbed.manifest.runs:
            train_run(undisturbed.manifest.folder(run).path, run.config)
        for _ in conduct(undisturbed):
            pass
        assert undisturbed.result() == result
