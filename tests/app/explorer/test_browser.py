"""The explorer in a real browser, offline: pages open, links reproduce views, clicks and downloads work."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pandas as pd
import pytest
from shipped import shipped

from app.explorer.registry import PAGES

DEFAULT = next(iter(PAGES))
APE, SPE, LSTM = (shipped(f"mod10/{cell}") for cell in ("ape-2L", "spe-2L", "lstm-1L"))
VIEW = urlencode({"counter": APE, "versus": LSTM})
PICTURE = "&drawn=true"  # the zoo draws one when it is asked to


def address(path: str) -> str:
    """Where a page is: the default one has no path."""
    return "" if path == DEFAULT else path


def pages(*quick: str) -> list[Any]:
    """All pages, of which `make test` opens some: test_pages.py draws every page there, without a browser."""
    return [pytest.param(path, marks=[] if path in quick else pytest.mark.slow) for path in PAGES]


@pytest.mark.parametrize("path", pages(DEFAULT, "pid-pca"))
def test_a_page_opens_and_its_url_gives_the_same_view_in_a_fresh_tab(path: str, visit: Callable[..., Any]) -> None:
    tab = visit().open(f"{address(path)}?{VIEW}{PICTURE if path == DEFAULT else ''}")
    assert tab.page.get_by_role("heading", name=PAGES[path].title, exact=True).is_visible()
    charts = tab.page.locator(".js-plotly-plot").all()
    assert charts or not PAGES[path].of_counter or path == "mechanism"  # which draws when it is asked to
    for chart in charts:
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
    again = visit().open(tab.page.url)
    assert again.page.url == tab.page.url
    assert again.data() == tab.data()
    assert tab.said == again.said == []


@pytest.mark.parametrize("path", pages("behaviour", "patching", "studies", "training"))
def test_a_page_fits_a_phone_at_night(path: str, visit: Callable[..., Any]) -> None:
    tab = visit("phone").open(address(path))
    assert tab.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth - innerWidth") <= 0
    assert tab.page.evaluate("getComputedStyle(document.querySelector('.stApp')).colorScheme") == "dark"
    assert tab.said == []


def test_a_changed_widget_changes_the_figure_and_the_url(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"behaviour?{urlencode({'counter': SPE})}")
    before = tab.data()
    tab.page.locator(".st-key-length input").press("ArrowRight")
    after = tab.settle().data()
    assert (len(before[0][0]["z"]), len(after[0][0]["z"])) == (5, 6)
    assert before[1] == after[1]
    assert "length=51" in tab.page.url
    assert visit().open(tab.page.url).data() == after


def test_a_click_on_the_zoo_opens_that_counter(visit: Callable[..., Any]) -> None:
    tab = visit().open("")
    tab.page.locator(f'a[href*="{quote(APE, safe="")}"]').first.click()
    tab.page.wait_for_url("**/behaviour*")
    tab.settle()
    assert tab.page.locator(".st-key-counter input").input_value() == APE
    assert tab.said == []


def test_a_panel_can_be_taken_away(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"behaviour?{urlencode({'counter': LSTM})}")
    buttons = tab.page.locator(".st-key-panel-0-0-files")
    taken = {}
    for form in ("SVG", "PNG", "CSV"):
        with tab.page.expect_download() as download:
            buttons.get_by_role("button", name=form, exact=True).click()
        assert download.value.suggested_filename == f"{LSTM.replace('/', '-').lower()}-token-by-token.{form.lower()}"
        taken[form] = Path(download.value.path()).read_bytes()
    assert taken["SVG"].startswith(b"<svg")
    assert taken["SVG"].count("✓".encode()) == 50
    assert taken["PNG"].startswith(b"\x89PNG")
    table = pd.read_csv(io.BytesIO(taken["CSV"]))
    assert list(table.position) == list(range(1, 51))
    assert table.right.all()
    buttons.get_by_role("button", name="Code").click()
    code = tab.page.locator("[data-testid=stPopoverBody] code").inner_text()
    assert f"load_counter('{LSTM}')" in code
    assert tab.said == []
