"""Reports: files for scripts and a page for people, which opens offline in a real browser."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from app.cli import main
from probes.registry import PROBES
from training.config import ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import train


def small_run(path: Path, **model: object) -> Path:
    """A counter that was trained for a moment."""
    config = TrainConfig(
        data=TaskOptions(task="mod10", train_length=20, ood_length=40),
        model=ModelOptions(n_layers=1, d_model=16, **({"n_heads": 2} if "position" in model else {}), **model),
        optimiser=OptimiserOptions(steps=12, batch_size=4),
        record=RecordOptions(eval_every=6, eval_rows=8, snapshots=4 if "position" in model else 0),
    )
    train(RunFolder.create(path, resolve(config)), progress=False)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two transformers and a recurrent counter."""
    folder = tmp_path_factory.mktemp("counters")
    return {
        "ape": small_run(folder / "ape", position="ape"),
        "rope": small_run(folder / "rope", position="rope"),
        "lstm": small_run(folder / "lstm", family="lstm"),
    }


@pytest.fixture(scope="module")
def written(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all three."""
    out = tmp_path_factory.mktemp("report")
    main(["report", *map(str, runs.values()), "--out", str(out), "--quiet"])
    return out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        main([str(arg) for arg in args])
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_report_json_says_what_was_looked_at_and_what_came_out(written: Path, runs: dict[str, Path]) -> None:
    report = json.loads((written / "report.json").read_text())
    assert (report["schema_version"], report["seed"]) == (2, 0)
    assert [counter["name"] for counter in report["checkpoints"]] == [str(path) for path in runs.values()]
    assert all(len(counter["sha256"]) == 64 for counter in report["checkpoints"])
    assert list(report["probes"]) == list(PROBES)
    for name, probe in report["probes"].items():
        for counter, result in probe["results"].items():
            assert "not_applicable" in result or result["verdict"]["sentence"], (name, counter)
    assert report["probes"]["attention"]["comparison"]["verdict"]["sentence"]


def test_a_probe_that_makes_no_sense_is_skipped_with_a_reason(written: Path, runs: dict[str, Path]) -> None:
    probes = json.loads((written / "report.json").read_text())["probes"]
    assert "attention" in probes["attention"]["results"][str(runs["lstm"])]["not_applicable"]
    assert "--snapshots" in probes["dynamics"]["results"][str(runs["lstm"])]["not_applicable"]
    page = (written / "report.html").read_text()
    assert page.count("Skipped: ") == sum(
        "not_applicable" in result for probe in probes.values() for result in probe["results"].values()
    )


def test_every_probe_has_a_tidy_table_of_the_counters_that_it_applies_to(written: Path, runs: dict[str, Path]) -> None:
    probes = json.loads((written / "report.json").read_text())["probes"]
    for name, probe in probes.items():
        counters = {counter for counter, result in probe["results"].items() if "not_applicable" not in result}
        assert (written / f"{name}.csv").exists() == bool(counters), name
        if counters:
            table = pd.read_csv(written / f"{name}.csv")
            assert table.columns[0] == "counter"
            assert set(table.counter) == counters, name
    assert {"behaviour", "first_token", "mod_pca", "bos", "logit_lens", "patching", "mechanism"} <= {
        path.stem for path in written.glob("*.csv")
    }


def test_the_same_seed_gives_the_same_results_whatever_stands_beside_them(
    runs: dict[str, Path], written: Path, tmp_path: Path
) -> None:
    name = str(runs["ape"])
    main(["report", name, "--out", str(tmp_path), "--quiet"])
    alone, among_others = (json.loads((folder / "report.json").read_text()) for folder in (tmp_path, written))
    for probe in PROBES:
        assert alone["probes"][probe]["results"][name] == among_others["probes"][probe]["results"][name]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files(runs: dict[str, Path], written: Path, tmp_path: Path) -> None:
    main(["report", *map(str, runs.values()), "--out", str(tmp_path), "--quiet"])
    assert (tmp_path / "report.json").read_bytes() == (written / "report.json").read_bytes()
    assert (tmp_path / "report.html").read_bytes() == (written / "report.html").read_bytes()


def test_some_probes_can_be_chosen(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(runs["ape"]), "--probes", "bos", "behaviour", "--out", str(tmp_path), "--quiet"])
    assert list(json.loads((tmp_path / "report.json").read_text())["probes"]) == ["behaviour", "bos"]
    assert "Behaviour\n" in capsys.readouterr().out


def test_wrong_names_are_refused_and_the_right_ones_listed(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    assert "Name at least one" in refused(capsys, "report", "--out", out)
    assert "did you mean mod_pca" in refused(capsys, "report", runs["ape"], "--probes", "mod_pc", "--out", out)
    assert "unknown checkpoint" in refused(capsys, "report", "mod10/nothing", "--out", out)
    assert "did you mean attention" in refused(capsys, "probe", "atention", runs["ape"])
    assert "which counter" in refused(capsys, "probe", "bos")
    assert not out.exists()


def test_one_probe_on_the_command_line(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["probe"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PROBES)
    main(["probe", "behaviour", str(runs["ape"])])
    assert "Does not fit" in capsys.readouterr().out
    main(["probe", "behaviour", str(runs["ape"]), "--json"])
    assert json.loads(capsys.readouterr().out)["verdict"]["sentence"]
    main(["probe", "behaviour", str(runs["ape"]), "--csv"])
    assert capsys.readouterr().out.startswith("measure,")
    assert "attention" in refused(capsys, "probe", "attention", runs["lstm"])


class Tags(HTMLParser):
    """The tags of a page, and what their attributes lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_of_folders_are_shown_as_they_are(runs: dict[str, Path], tmp_path: Path) -> None:
    hostile = [
        tmp_path / "<img src=x onerror=hacked()><a href='evil'>",
        tmp_path / "<script>hacked()<",
    ]
    for source, folder in zip((runs["ape"], runs["rope"]), hostile, strict=True):
        shutil.copytree(source, folder)
    out = tmp_path / "report"
    main(["report", *map(str, hostile), "--probes", "behaviour", "attention", "--out", str(out), "--quiet"])
    text = (out / "report.html").read_text()
    page = Tags()
    page.feed(text)
    assert not any(tag == "img" or "evil" in str(attributes.get("href")) for tag, attributes in page.found)
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert "<h3>" + escape(str(hostile[1])) in text
    drawn = text.replace("\\u003c", "<").replace("\\u003e", ">")  # as plotly writes them
    drawn = re.sub(r'"meta":\{"alt":"(\\.|[^"\\])*"\}', "", drawn)  # read by nobody but screen readers
    assert "&lt;img src=x onerror=hacked()>&lt;a href='evil'>" in drawn  # as a figure has it: plotly reads tags
    assert "<img src=x" not in drawn
    assert {"behaviour.csv", "attention.csv", "report.json"} <= {path.name for path in out.iterdir()}


@pytest.fixture
def page(written: Path, browser: Any) -> Iterator[tuple[object, list[str]]]:
    """The report in a browser that has no network, and what its console says."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.set_default_timeout(300_000)
    page.on("console", lambda message: said.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"asked for {request.url[:80]}"))
    page.goto((written / "report.html").as_uri())
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length > 0")
    yield page, said
    context.close()


def test_the_page_opens_offline_and_draws_everything(page: tuple[object, list[str]], written: Path) -> None:
    shown, said = page
    drawn = shown.locator(".js-plotly-plot .main-svg").count()  # type: ignore[attr-defined]
    figures = shown.locator("figure").all()  # type: ignore[attr-defined]
    assert drawn >= len(figures) > 15
    assert all(figure.get_attribute("aria-label") for figure in figures)
    sections = shown.locator("nav a").all()  # type: ignore[attr-defined]
    assert [link.get_attribute("href") for link in sections] == ["#counters", *(f"#{name}" for name in PROBES)]
    assert all(shown.locator(link.get_attribute("href")).count() == 1 for link in sections)  # type: ignore[attr-defined]
    overflow = shown.evaluate("document.documentElement.scrollWidth - innerWidth")  # type: ignore[attr-defined]
    assert overflow <= 0
    assert said == []
    assert (written / "report.html").stat().st_size < 10e6
    if "REPORT_SCREENSHOT" in os.environ:
        shown.screenshot(path=os.environ["REPORT_SCREENSHOT"], full_page=True)  # type: ignore[attr-defined]
