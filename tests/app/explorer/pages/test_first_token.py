"""The page First token: what is drawn is what the probe read."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from shipped import shipped

from app.figures.first_token import readings_figure
from models import CountLensError
from probes.reading.first_token import FirstToken, Reading, SiteReadings
from probes.sites import Site

Open, Figures = Callable[..., Any], Callable[[Any], list[Any]]


def reading(value: float) -> Reading:
    return Reading(value, value - 0.1, value + 0.05, value, 0.001, (0.4, 0.6))


FOUND = FirstToken(
    0.7,
    (
        SiteReadings(Site("resid_pre", 0), reading(0.5), reading(0.3)),
        SiteReadings(Site("resid_post", 0), reading(0.9), reading(0.4)),
        SiteReadings(Site("resid_post", 1), reading(0.8), reading(0.6)),
    ),
    ignores_positions=False,
    claim=True,
)


def test_every_site_stands_beside_untrained_counters() -> None:
    figure = readings_figure(FOUND)
    untrained, mine = figure.data
    assert list(mine.y) == ["L0 resid_pre", "L0 resid_post", "L1 resid_post"]
    assert list(mine.x) == [0.5, 0.9, 0.8]
    np.testing.assert_allclose(mine.error_x.arrayminus, 0.1)
    np.testing.assert_allclose(mine.error_x.array, 0.05)
    assert list(untrained.x) == [0.4, 0.6] * 3
    assert figure.layout.shapes[0].x0 == 0.5  # chance
    assert "best at L0 resid_post: 0.90" in figure.layout.meta["alt"]


def test_the_shift_stands_beside_what_a_tokens_own_position_tells() -> None:
    figure = readings_figure(FOUND, "shift", layer=0)
    assert list(figure.data[1].x) == [0.3, 0.4]
    assert figure.layout.shapes[0].x0 == 0.7
    with pytest.raises(CountLensError, match="layer 2 was not looked at"):
        readings_figure(FOUND, layer=2)


def test_widgets_choose_among_what_was_read(open_page: Open, figures: Figures) -> None:
    app = open_page("first-token", counter=shipped("mod10/ape-2L"))
    (everything,) = figures(app)
    app.selectbox(key="layers").select("1").run()
    sites = figures(app)[0]["data"][1]["y"]
    assert sites == [label for label in everything["data"][1]["y"] if label.startswith("L1")] != []
    app.selectbox(key="read").select("shift").run()
    assert "the shift: R²" in figures(app)[0]["layout"]["meta"]["alt"]


def test_the_shift_of_a_counter_that_ignores_positions_is_a_sentence(open_page: Open, figures: Figures) -> None:
    app = open_page("first-token", counter=shipped("mod10/lstm-1L"), read="shift")
    assert "ignores position ids" in app.info[0].value
    assert figures(app) == []


def test_rows_are_of_equal_or_of_different_tokens(open_page: Open, figures: Figures) -> None:
    app = open_page("first-token", counter=shipped("first_tok_heterogeneous/nope-1L"))
    assert app.selectbox(key="rows").value == "different tokens"
    (different,) = figures(app)
    app.selectbox(key="rows").select("equal tokens").run()
    (equal,) = figures(app)
    best_different, best_equal = (max(figure["data"][1]["x"]) for figure in (different, equal))
    assert best_different > 0.95
    assert best_equal == 0.5  # chance: without positions nothing tells equal tokens apart
    assert "equal_tokens=True" in app.code[0].value


def test_a_counter_of_equal_tokens_alone_names_others(open_page: Open, figures: Figures) -> None:
    app = open_page("first-token", counter=shipped("mod10/ape-2L"), rows="different tokens")
    assert not figures(app)
    assert "selective/nope-2L" in app.info[0].value


def test_in_a_browser_the_switch_of_rows_redraws_the_readings(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"first-token?{urlencode({'counter': shipped('first_tok_heterogeneous/nope-1L')})}")
    assert max(tab.data()[0][1]["x"]) > 0.95
    tab.page.locator(".st-key-rows").get_by_role("combobox").click()
    tab.page.get_by_role("option", name="equal tokens").click()
    assert max(tab.settle().data()[0][1]["x"]) == 0.5
    assert "rows=equal" in tab.page.url
    assert tab.said == []
