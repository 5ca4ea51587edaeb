"""The page BOS ablation: switches decide what is edited, and the lines show what that costs."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import numpy as np
from shipped import shipped

from app.explorer.page import WIDE
from app.figures.chosen_edits import edited_figure
from probes.ablation.chosen_edits import ChosenEdits

Open, Figures = Callable[..., Any], Callable[[Any], list[Any]]
ROPE = shipped("mod10-bos/rope-2L")
NAN = float("nan")


def lines(figure: dict[str, Any]) -> dict[str, Any]:
    """What the lines of a figure have, by their names."""
    return {trace["name"]: trace["y"] for trace in figure["data"]}


def test_lines_are_the_probes_and_positions_count_from_1() -> None:
    percent = [np.array(values) for values in ([NAN, 100.0, 90.0], [NAN, 10.0, 20.0], [NAN, 100.0, 80.0])]
    found = ChosenEdits("bos cut", "everywhere", *percent, np.array([0, 4, 4]), trained_up_to=2)
    figure = edited_figure(found)
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "untouched": [100, 90],
        "first token edited": [10, 20],
        "second token edited": [100, 80],
    }
    assert list(figure.data[0].x) == [2, 3]
    assert figure.layout.shapes[0].x1 == 2.5
    assert "from 100.0 to 10.0 % at trained positions and from 90.0 to 20.0 % beyond" in figure.layout.meta["alt"]


def test_bos_cut_everywhere_breaks_what_needs_it_and_the_second_token_does_not(
    open_page: Open, figures: Figures
) -> None:
    (figure,) = figures(open_page("bos-ablation", counter=ROPE))
    alt = figure["layout"]["meta"]["alt"]
    numbers = re.search(r"to <bos> cut everywhere, accuracy goes from (\S+) to (\S+) % at .*instead, to (\S+) and", alt)
    assert numbers is not None
    untouched, without_bos, without_second = map(float, numbers.groups())
    assert untouched > 90
    assert without_bos < 15
    assert without_second > without_bos + 50


def test_switches_choose_layers_and_heads(open_page: Open, figures: Figures) -> None:
    app = open_page("bos-ablation", counter=ROPE)
    assert [switch.key for switch in app.toggle] == ["every", "L0", "L1"]
    app.toggle(key="L0").set_value(False).run()
    assert "cut in layer 1," in figures(app)[0]["layout"]["meta"]["alt"]
    app.toggle(key="L1").set_value(False).run()
    nothing = lines(figures(app)[0])
    assert nothing["first token edited"] == nothing["second token edited"] == nothing["untouched"]
    app.toggle(key="L0H3").set_value(True).run()
    one_head = figures(app)[0]
    assert "cut in head 0.3," in one_head["layout"]["meta"]["alt"]
    assert lines(one_head)["first token edited"] != nothing["untouched"]
    assert lines(one_head)["untouched"] == nothing["untouched"]


def test_a_link_has_the_switches(open_page: Open, figures: Figures) -> None:
    app = open_page("bos-ablation", counter=ROPE, edit="zeroed", L0="false", L0H1="true", L0H2="true")
    assert "zeros read at <bos> in head 0.1, head 0.2, layer 1," in figures(app)[0]["layout"]["meta"]["alt"]


def test_a_recurrent_counter_has_its_state_edited(open_page: Open, figures: Figures) -> None:
    app = open_page("bos-ablation", counter=shipped("mod10/lstm-1L"), versus=shipped("mod10/ape-2L"))
    assert list(app.selectbox(key="edit").options) == ["zeroed", "averaged"]
    recurrent, transformer = (figure["layout"]["meta"]["alt"] for figure in figures(app))
    assert "state after the first token set to 0 everywhere" in recurrent
    assert "zeros read at the first token everywhere" in transformer
    other_way = open_page("bos-ablation", counter=shipped("mod10/ape-2L"), versus=shipped("mod10/lstm-1L"))
    assert "unknown edit of LSTM 'cut'" in other_way.info[0].value


def test_every_edit_is_tried_on_demand(open_page: Open, figures: Figures) -> None:
    app = open_page("bos-ablation", counter=shipped("mod10/lstm-1L"), every="true")
    _, bars = figures(app)
    assert bars["data"][0]["y"] == [
        "state after the first token reset to 0",
        "state after the first token replaced by the mean of all positions",
        "state after the second token reset to 0 (control)",
    ]


def test_on_a_phone_pictures_with_long_labels_scroll_and_the_page_does_not(visit: Callable[..., Any]) -> None:
    tab = visit("phone").open(f"bos-ablation?{urlencode({'counter': ROPE, 'every': 'true'})}")
    narrow, bars, heads = tab.page.locator(".js-plotly-plot").all()
    assert narrow.bounding_box()["width"] < 390 < WIDE <= bars.bounding_box()["width"]
    assert heads.bounding_box()["width"] >= WIDE
    assert tab.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth - innerWidth") <= 0
    assert tab.said == []
