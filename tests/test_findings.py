"""docs/findings and the README say what the protocols and the results say."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from docs_scripts import load_script
from toy_study import toy_study

from probes.studies.registry import STUDIES
from probes.studies.result import SHIPPED_STUDIES, StudyResult, list_results
from probes.studies.study import table_of

ROOT = Path(__file__).parents[1]
SHIPPED_RESULTS = [found.result for found in list_results(SHIPPED_STUDIES) if found.result is not None]
TWO_PAGES = 1250  # words


@pytest.fixture(scope="module")
def findings() -> ModuleType:
    return load_script("findings")


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_is_what_the_script_writes_and_at_most_two_pages_long(findings: ModuleType, name: str) -> None:
    (page,) = [page for page in findings.list_pages() if page.name == name]
    text = page.text()
    assert (findings.PAGES / f"{page.study.number}.md").read_text() == text, "run python docs/findings.py"
    assert len(text.split()) < TWO_PAGES
    assert len(page.figures) == (0 if page.result is None else 2)
    for index in range(1, len(page.figures) + 1):
        assert (findings.PAGES / f"{page.study.number}-{index}.svg").stat().st_size < 100_000


def test_the_readme_has_a_line_for_each_finding(findings: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text()
    assert findings.with_table(readme, findings.list_pages()) == readme, "run python docs/findings.py"


def test_every_shipped_result_follows_from_its_runs_and_from_the_protocol_as_it_stands() -> None:
    for result in SHIPPED_RESULTS:
        study, table = STUDIES[result.study], table_of(result.rows)
        assert not result.quick
        assert result.protocol == study.protocol
        assert {run.name for run in study.runs()} == {str(row["run"]) for row in result.rows} | set(result.missing)
        for ours, theirs in zip(study.judge(table), result.claims, strict=True):
            assert ours.claim == theirs.claim
            assert vars(ours.estimate) == pytest.approx(vars(theirs.estimate))


def test_only_a_full_result_under_the_present_protocol_is_taken(
    findings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.report.study import write_study

    study = toy_study()
    monkeypatch.setitem(STUDIES, "toy", study)
    monkeypatch.setattr(findings, "SHIPPED_STUDIES", tmp_path / "shipped")
    rows = [
        {"run": f"{lr}/{seed}", "seed": float(seed), "lr": lr, "task": "mod3", "ind": 10 + 300 * lr + seed}
        for seed in (0, 1)
        for lr in (0.0, 0.1)
    ]
    table = pd.DataFrame(rows)
    result = StudyResult(
        study="toy",
        number=study.number,
        title=study.title,
        protocol=study.protocol,
        protocol_digest=study.protocol.digest,
        quick=False,
        n_runs=4,
        missing={},
        rows=tuple(rows),
        claims=study.judge(table),
        panels=study.draw(table),
    )
    write_study(replace(result, quick=True), tmp_path / "runs/quick")
    write_study(replace(result, protocol_digest="another"), tmp_path / "runs/another")
    findings.take_results(tmp_path / "runs")
    assert not (tmp_path / "shipped").exists()
    assert capsys.readouterr().err.count("left out") == 2
    write_study(result, tmp_path / "runs/toy")
    findings.take_results(tmp_path / "runs")
    assert sorted(path.name for path in (tmp_path / "shipped/toy").iterdir()) == [
        "claims.csv",
        "result.json",
        "runs.csv",
    ]
    page = next(page for page in findings.list_pages() if page.name == "toy")
    assert page.number("faster is better") == "30.0 (30.0 to 30.0)"
    assert page.mean("ind", lr=0.1) == "40.5 (40.0 to 41.0)"
    assert page.mean("lr", "share", lr=0.1) == "10.0 % (10.0 to 10.0)"
    assert page.count("ind", 40.5) == "1 of 4"
    assert (
        "| **faster is better**: IND is higher with the larger rate. | above 0.0 | 30.0 (30.0 to 30.0) | supported |"
        in page.text()
    )
    assert page.figure("IND over the rate", "Words.").startswith("![IND over the rate](9-1.svg)")
