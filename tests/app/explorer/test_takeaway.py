"""Clicks on charts: what they set, and that a browser cannot set anything else."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import pytest
from shipped import shipped

from app.explorer.page import DrawnPanel
from app.explorer.takeaway import chosen_values

DRAWN = {
    "map": DrawnPanel("A map.", {"layer": range(2), "position": range(20)}),
    "curve": DrawnPanel("A curve.", {"step": ["0", "100"]}),
    "still": DrawnPanel("A picture."),
}


def test_a_click_sets_the_widgets_of_its_chart_and_no_others() -> None:
    assert chosen_values(DRAWN, {"chart": "map", "values": [1, 7]}) == {"layer": 1, "position": 7}
    assert chosen_values(DRAWN, {"chart": "curve", "values": [100]}) == {"step": "100"}


@pytest.mark.parametrize(
    "click",
    [
        None,
        "map",
        {"chart": "map", "values": [1, 20]},
        {"chart": "map", "values": [1]},
        {"chart": "map", "values": ["__class__", 1]},
        {"chart": "map", "values": {"layer": 1}},
        {"chart": "still", "values": [1]},
        {"chart": "other", "values": [1]},
        {"chart": ["map"], "values": [[1], [2]]},
        {"values": [1, 1]},
    ],
)
def test_nonsense_from_a_browser_sets_nothing(click: Any) -> None:
    assert chosen_values(DRAWN, click) == {}


CHART = "[...document.querySelectorAll('.js-plotly-plot')].at({chart})"


def click_on(tab: Any, point: str, chart: int = 0) -> Any:
    """Clicks on a point of a chart, given by an expression for its x and y; returns the expression's further values."""
    tab.page.evaluate(f"{CHART.format(chart=chart)}.scrollIntoView({{block: 'center'}})")
    tab.page.wait_for_timeout(300)
    x, y, *more = tab.page.evaluate(
        f"""() => {{
            const chart = {CHART.format(chart=chart)}, layout = chart._fullLayout, traces = chart._fullData;
            const box = chart.querySelector('.nsewdrag').getBoundingClientRect();
            const [x, y, ...more] = {point};
            return [box.left + layout.xaxis.d2p(x), box.top + layout.yaxis.d2p(y), ...more];
        }}"""
    )
    tab.page.mouse.move(x, y)
    tab.page.wait_for_timeout(300)
    tab.page.mouse.click(x, y)
    tab.page.wait_for_timeout(500)
    tab.settle()
    return more


def parameters(tab: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlparse(tab.page.url).query).items()}


def test_in_a_browser_a_click_on_the_patching_map_chooses_the_cell(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"patching?{urlencode({'counter': shipped('mod10/ape-2L'), 'length': '12'})}")
    before = tab.data()
    click_on(tab, "[5, 'layer 1']")
    found = parameters(tab)
    assert (found["layer"], found["position"]) == ("1", "5")
    assert tab.page.locator(".st-key-position input").input_value() == "5"
    assert tab.data()[0] == before[0]
    assert "layer 1 pos 5" in tab.page.locator(".js-plotly-plot").nth(1).get_attribute("aria-label")
    tab.page.locator(".st-key-position input").press("ArrowRight")  # the widget stays the truth
    assert parameters(tab.settle())["position"] == "6"
    assert tab.said == []


@pytest.mark.slow  # quick sibling: test_in_a_browser_a_click_on_the_patching_map_chooses_the_cell
def test_in_a_browser_a_click_on_a_token_marks_it(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"pid-pca?{urlencode({'counter': shipped('mod10/ape-2L'), 'pids': '40'})}")
    (pid,) = click_on(tab, "[traces[1].x[25], traces[1].y[25], traces[1].customdata[25]]")
    mark = int(parameters(tab)["mark"])
    assert mark % 10 == pid % 10  # tokens of a cluster lie on each other
    assert f"The token at PID {mark} is marked" in tab.page.locator(".js-plotly-plot").first.get_attribute("aria-label")
    assert tab.said == []


@pytest.mark.slow  # quick sibling: test_in_a_browser_a_click_on_the_patching_map_chooses_the_cell
def test_in_a_browser_a_click_on_the_curve_chooses_the_step(visit: Callable[..., Any]) -> None:
    tab = visit().open(f"training?{urlencode({'counter': shipped('mod10/spe-2L')})}")
    (step,) = click_on(tab, "[traces[0].x[5], traces[0].y[5], traces[0].customdata[5]]", chart=-1)
    assert parameters(tab)["step"] == str(step)
    assert tab.said == []
