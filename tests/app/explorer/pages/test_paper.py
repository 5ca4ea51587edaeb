"""The page Paper: what it shows is what the scores and the probes say."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from score_rows import row_of
from streamlit.testing.v1 import AppTest

from app.explorer.inside import attention_lines
from app.explorer.walk import STOPS
from models.checkpoint import load_counter
from models.find import SHIPPED
from probes.reading.attention_variation import attention_variation
from training.paper.claims import CLAIMS, judge
from training.paper.comparison import compare
from training.paper.score_table import read_scores, write_scores
from training.paper.tables import paper_cells

WITHOUT_PROBES = [name for name, stop in STOPS.items() if stop.inside is None]


@pytest.fixture(
    params=[("attention",), pytest.param(tuple(STOPS), marks=pytest.mark.slow)], ids=["some probes", "all probes"]
)
def paper_examines(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """All tests of the page run with the probes of one claim, and in `make test-all` with those of every claim."""
    names: tuple[str, ...] = request.param
    return names


def shown(app: AppTest) -> list[str]:
    return [unescape(element.proto.body) for element in app.get("html")]


def verdicts(app: AppTest) -> dict[str, str]:
    """The verdicts in the page's list of claims."""
    (overview,) = [body for body in shown(app) if body.startswith("<ol")]
    found = re.findall(r"<a href='#[^']*'>(.*?)</a> <span[^>]*>. (.*?)</span>", overview)
    titles = {claim.title: name for name, claim in CLAIMS.items()}
    return {titles[title]: verdict for title, verdict in found}


def test_verdicts_and_numbers_are_those_of_the_shipped_scores(open_page: Callable[..., Any]) -> None:
    app = open_page("paper")
    assert not app.exception
    comparison = compare(read_scores(SHIPPED / "scores.csv"))
    found = verdicts(app)
    assert list(found) == list(CLAIMS)
    for name in WITHOUT_PROBES:
        assert found[name] == judge(CLAIMS[name], comparison).verdict
    page = "".join(shown(app))
    for name, claim in CLAIMS.items():
        for line in judge(claim, comparison).tested:
            assert f"{line.name}</a>" in page or f"<span>{line.name}</span>" in page, name
    assert "countlens" not in page
    assert [button.label for button in app.get("download_button")] == ["CSV"]


def test_claims_about_the_inside_have_lines_from_probes(open_page: Callable[..., Any]) -> None:
    page = "".join(shown(open_page("paper")))
    names = ("rope", "nope", "sine", "ape", "spe")
    results = {name: attention_variation(load_counter(f"selective-bos/{name}-1L")) for name in names}
    for line in attention_lines(results):
        assert f"<span>{line.name}</span>" in page
        assert f"<b>{line.ours:.1f}</b> <small>claim: {line.expects}" in page


def test_scores_that_contradict_a_claim_change_its_verdict(open_page: Callable[..., Any], more_counters: Path) -> None:
    cells = {(cell.task, cell.architecture, cell.layers): cell for cell in paper_cells("counting_results")}
    schemes = [key for key in cells if key[0] == "vanilla_succession"]
    before = verdicts(open_page("paper"))["succession"]
    planted = more_counters / "scores.csv"
    try:
        # Under the shipped names, so that they win over the shipped scores.
        write_scores(planted, [row_of(cells[key], 100.0, 100.0) for key in schemes])
        assert (before, verdicts(open_page("paper"))["succession"]) == ("holds", "does not hold here")
        planted.write_text("name,task\nx,y\n")
        app = open_page("paper")
        assert "lacks the columns" in app.warning[0].value
    finally:
        planted.unlink()


@pytest.mark.slow  # quick siblings: test_a_click_on_the_zoo_opens_that_counter, and the links of test_walk.py
@pytest.mark.parametrize("name", ["modular", "clusters"])
def test_in_a_browser_a_claim_leads_to_its_view(name: str, visit: Callable[..., Any]) -> None:
    tab = visit().open("paper")
    label = STOPS[name].views[0].label
    tab.page.get_by_role("heading", name=CLAIMS[name].title).first.scroll_into_view_if_needed()
    assert tab.page.locator(".claim [class=ours]").first.bounding_box()["width"] > 5
    tab.page.get_by_role("link", name=label).click()
    tab.page.wait_for_url(f"**/{STOPS[name].views[0].page}*")
    tab.settle()
    assert tab.data()
    assert not tab.page.get_by_text("The link asked for").count()
    assert tab.said == []
