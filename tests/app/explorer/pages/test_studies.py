"""The page Studies: what it shows is what a study wrote, and a broken result is named."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.report.study import write_study
from probes.stats import Interval
from probes.studies.result import SHIPPED_STUDIES, StudyResult, list_results
from probes.studies.study import JudgedClaim, Panel, Protocol, Series, StudyClaim

CLAIM = StudyClaim("slope", "OOD rises with the score.", "above", 0, "a slope surely below 0", unit="points")
PROTOCOL = Protocol("Does <b>it</b> rise?", "", "It rises.", "ten runs", {"ood": "percent"}, "a slope", (CLAIM,), "")
POINTS = Series("runs", (0.0, 1.0), (Interval(10.0, 9.0, 11.0), Interval(30.0, 29.0, 31.0)))
RESULT = StudyResult(
    study="planted",
    number=7,
    title="A planted study",
    protocol=PROTOCOL,
    protocol_digest=PROTOCOL.digest,
    quick=True,
    n_runs=2,
    missing={"mod10/x/seed9": "not finished"},
    rows=({"seed": 1.0, "ood": 10.0}, {"seed": 2.0, "ood": 30.0}),
    claims=(JudgedClaim(CLAIM, Interval(20.0, 18.0, 22.0)),),
    panels=(Panel("OOD by score", "score", "OOD", (POINTS,)),),
)


@pytest.fixture
def studies(more_counters: Path) -> Iterator[Path]:
    folder = more_counters / "studies"
    write_study(RESULT, folder / "planted")
    (folder / "torn").mkdir()
    (folder / "torn/result.json").write_text('{"study": "x"')
    yield folder
    import shutil

    shutil.rmtree(folder)


def test_a_result_is_shown_with_its_claims_pictures_and_what_is_missing(
    studies: Path, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("studies", study=f"{studies.parent.name}/studies/planted")
    assert not app.exception
    assert app.subheader[0].value == "7. A planted study"
    text = " ".join(block.value for block in (*app.markdown, *app.caption))
    assert r"Does \<b\>it\</b\> rise?" in text
    assert "Supported (quick: 2 runs, 2 seeds)" in text.replace("\\", "")
    assert "mod10/x/seed9" in text
    (claims,) = [frame.value for frame in app.dataframe]
    assert list(claims.status) == ["supported"]
    (figure,) = figures(app)
    assert figure["data"][0]["y"] == [10.0, 30.0]


def test_a_broken_result_is_named_without_the_servers_paths(studies: Path, open_page: Callable[..., Any]) -> None:
    app = open_page("studies", study=f"{studies.parent.name}/studies/torn")
    assert not app.exception
    assert "result.json" in app.error[0].value
    assert str(studies) not in app.error[0].value


def test_without_results_it_says_how_to_get_one(open_page: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.explorer.pages.studies.list_results", lambda folder: [])
    assert "countlens study NAME" in open_page("studies").info[0].value


def test_every_result_that_comes_with_the_project_is_listed(open_page: Callable[..., Any]) -> None:
    for shipped in list_results(SHIPPED_STUDIES):
        app = open_page("studies", study=f"checkpoints/studies/{shipped.path.parent.name}")
        assert not app.exception
        assert shipped.error is None
        assert app.subheader[0].value.startswith(f"{shipped.result.number}. ")
