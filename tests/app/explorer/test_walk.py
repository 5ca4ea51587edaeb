"""The walk through the paper: every claim has a place, and every link leads where it says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from app.explorer.catalogue import Catalogue, read_catalogue, start_folders
from app.explorer.registry import PAGES
from app.explorer.walk import STOPS, View, find_entry
from training.paper.claims import CLAIMS

VIEWS = [view for stop in STOPS.values() for view in stop.views]
FIRST = {view.page: view for view in reversed(VIEWS)}  # one for each page; test_pages.py opens more of each


@pytest.fixture
def catalogue() -> Catalogue:
    return read_catalogue(start_folders([]))


def test_every_claim_has_a_stop_in_the_papers_order() -> None:
    assert list(STOPS) == list(CLAIMS)
    assert all(stop.views for stop in STOPS.values())


def test_every_link_names_counters_that_ship(catalogue: Catalogue) -> None:
    for view in VIEWS:
        address = view.address(catalogue)
        assert address is not None, view
        assert view.page in PAGES
        parameters = dict(parse_qsl(address.partition("?")[2]))
        assert {parameters[name] for name in ("counter", "versus") if name in parameters} <= catalogue.entries.keys()


@pytest.mark.parametrize(
    "view",
    [pytest.param(view, id=view.label, marks=[] if view is FIRST[view.page] else pytest.mark.slow) for view in VIEWS],
)
def test_a_link_opens_the_view_that_it_asks_for(
    view: View, catalogue: Catalogue, open_page: Callable[..., Any]
) -> None:
    parameters = dict(parse_qsl((view.address(catalogue) or "").partition("?")[2]))
    app = open_page(view.page, **parameters)
    assert not app.exception
    widgets = [*app.selectbox, *app.slider, *app.text_input, *app.toggle]
    chosen = {widget.key: str(widget.value) for widget in widgets}
    for name, value in parameters.items():
        assert chosen[name].lower() == value.lower(), name


def test_a_counter_that_is_not_there_has_no_link(tmp_path: Path) -> None:
    nothing = read_catalogue((tmp_path,))
    assert View("x", "behaviour", "mod10/ape-2L").address(nothing) is None
    assert View("x", "zoo", settings={"near": "true"}).address(nothing) == "./?near=true"
    assert View("x", "states").address(nothing) == "states"
    assert find_entry(nothing, "mod10/ape-2L") is None


def test_a_probe_is_named_with_the_function_that_judges_it() -> None:
    for stop in STOPS.values():
        if stop.inside is not None:
            assert callable(stop.inside.function)
            assert list(stop.inside.judge({})) == []
