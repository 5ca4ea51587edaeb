"""`countlens study`, as a user calls it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_study import toy_study

from app.cli import main
from probes.studies.registry import STUDIES
from probes.studies.result import list_results
from training.config import EngineOptions
from training.sweep.engine import Event, record_failure, train_run
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The toy study, trained in this process."""

    def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        for run in runs:
            yield Event(run, "started")
            outcome = train_run(manifest.folder(run).path, run.config)
            yield Event(run, outcome.kind, outcome.error)

    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: run_all)
    monkeypatch.setitem(STUDIES, "toy", toy_study())
    monkeypatch.chdir(tmp_path)


def called(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    if code:
        with pytest.raises(SystemExit) as end:
            main(["study", *args])
        assert end.value.code == code
    else:
        main(["study", *args])
    captured = capsys.readouterr()
    return captured.err if code == 2 else captured.out


def test_without_a_name_the_studies_are_listed_with_their_questions(capsys: pytest.CaptureFixture[str]) -> None:
    lines = called(capsys).splitlines()
    assert [line.split()[0] for line in lines] == ["predicting_ood", "rope_periods", "row_beginning", "toy"]
    assert "Why does rope, whose rotation is periodic, not count modulo 10?" in lines[1]


def test_a_dry_run_prints_the_protocol_and_the_cost_and_trains_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = called(capsys, "toy", "--dry-run", "--workers", "1")
    assert "Refuted if it is surely lower." in out
    assert "work  4 runs in 2 cells" in out
    assert not (tmp_path / "runs").exists()


def test_a_study_leaves_its_result_tables_figures_and_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = called(capsys, "toy", "--out", "studies")
    assert "Supported (4 runs, 2 seeds). Faster is better" in out
    assert "Refuted if faster is better: it is surely lower" in out
    folder = tmp_path / "studies/toy"
    assert {"result.json", "runs.csv", "claims.csv", "study.html", "figures"} < {path.name for path in folder.iterdir()}
    (found,) = list_results(tmp_path / "studies")
    assert found.result.status == "supported"
    assert len((folder / "runs.csv").read_text().splitlines()) == 5
    assert json.loads((folder / "figures/1.json").read_text())["data"]


def test_the_page_says_verdict_interval_and_refutation_and_loads_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    called(capsys, "toy", "--quick")
    page = (tmp_path / "runs/studies/toy-quick/study.html").read_text()
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for part in ("Supported", "quick: 4 runs, 2 seeds", "it is surely lower", "A quick study", PROTOCOL_DIGEST):
        assert part in text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


PROTOCOL_DIGEST = toy_study().protocol.digest


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown study 'rope': did you mean rope_periods" in called(capsys, "rope", code=2)


def test_a_run_that_fails_is_named_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_all(manifest: Manifest, runs: list[SweepRun], options: EngineOptions) -> Iterator[Event]:
        for run in runs:
            folder = manifest.folder(run)
            is_broken = folder.path.name == "seed1"
            outcome = (
                record_failure(folder, "the disk burnt down\n") if is_broken else train_run(folder.path, run.config)
            )
            yield Event(run, outcome.kind, outcome.error)

    monkeypatch.setattr("training.sweep.engine.get_engine", lambda name: run_all)
    with pytest.raises(SystemExit) as end:
        main(["study", "toy", "--out", "studies"])
    assert end.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.count("not in the table") == 2
    assert "the disk burnt down" in captured.err
    (found,) = list_results(tmp_path / "studies")
    assert len(found.result.missing) == 2
