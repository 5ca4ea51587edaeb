"""Every page of the explorer, on counters of every kind, without a browser."""

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest
from shipped import shipped

from app.explorer.glossary import glossary_table
from app.explorer.registry import PAGES
from app.figures.style import INK, ON_DARK, colour_of, dress, on_dark

TRANSFORMER, RECURRENT = shipped("mod10/ape-2L"), shipped("mod10/lstm-1L")
DEFAULT = next(iter(PAGES))
OF_COUNTER = [path for path, page in PAGES.items() if page.of_counter]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("counter", [TRANSFORMER, RECURRENT])
def test_every_page_draws_a_counter_or_says_why_not(
    path: str, counter: str, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page(path, counter=counter, drawn="true")
    assert not app.exception
    assert app.title[0].value == PAGES[path].title
    assert glossary_table() in [block.value for block in app.markdown]
    shown = figures(app)
    assert shown or app.info or any("class='claim'" in element.proto.body for element in app.get("html"))
    for figure in shown:
        assert len(figure["layout"]["meta"]["alt"]) > 20
        assert not any("gl" in trace["type"] for trace in figure["data"])  # WebGL: not in SVG, and few at a time


@pytest.mark.parametrize("path", OF_COUNTER)
@pytest.mark.parametrize(("counter", "reason"), [("cut", "truncated"), ("foreign", "not a safetensors")])
def test_a_broken_file_is_named_with_its_reason(
    path: str, counter: str, reason: str, open_page: Callable[..., Any]
) -> None:
    app = open_page(path, counter=counter)
    assert not app.exception
    assert reason in app.error[0].value


@pytest.mark.parametrize("path", OF_COUNTER)
def test_two_counters_stand_side_by_side_and_a_broken_one_harms_no_other(
    path: str, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    alone = figures(open_page(path, counter=TRANSFORMER))
    both = open_page(path, counter=TRANSFORMER, versus=RECURRENT)
    assert not both.exception
    assert [heading.value for heading in both.subheader] == [TRANSFORMER, RECURRENT]
    assert figures(both)[: len(alone)] == alone
    beside_broken = open_page(path, counter=TRANSFORMER, versus="cut")
    assert figures(beside_broken) == alone
    assert "truncated" in beside_broken.error[0].value


# What a link asks of a page, and how that shows in the code. `make test` has at least one view of each page.
VIEWS = [
    *(
        pytest.param(path, {"counter": TRANSFORMER, "drawn": "true"}, "", marks=[pytest.mark.slow] * page.of_counter)
        for path, page in PAGES.items()
    ),
    ("mechanism", {"counter": TRANSFORMER}, ""),
    ("behaviour", {"counter": RECURRENT, "tokens": "a a a"}, "predict_tokens(counter, 'a a a', "),
    ("first-token", {"counter": TRANSFORMER, "read": "shift", "layers": "1"}, "(result, 'shift', layer=1)"),
    (
        "pid-pca",
        {"counter": TRANSFORMER, "site": "q", "head": "1", "solid": "true"},
        "head=1), modulus=10, dimensions=3",
    ),
    ("attention", {"counter": TRANSFORMER, "layer": "1", "head": "1", "shift": "7"}, "layer=1, shift=7)"),
    ("bos-ablation", {"counter": TRANSFORMER, "L0": "false", "L0H1": "true"}, "places=((0, 1), (1, None))"),
    pytest.param(
        "bos-ablation", {"counter": TRANSFORMER, "every": "true"}, "bos_ablation(counter)", marks=pytest.mark.slow
    ),
    ("patching", {"counter": TRANSFORMER, "site": "head_z", "row": "3"}, "site='head_z', row=3, layer=0, head=0)"),
    pytest.param(
        "patching", {"counter": RECURRENT, "mechanism": "true"}, "memory_mechanisms(counter)", marks=pytest.mark.slow
    ),
    pytest.param(
        "patching", {"counter": TRANSFORMER, "mechanism": "true"}, "mechanisms(counter)", marks=pytest.mark.slow
    ),
    ("states", {"counter": RECURRENT, "picture": "3D", "modulus": "7"}, ", 7, 3)"),
    pytest.param(
        "states",
        {"counter": RECURRENT, "picture": "circle", "source": "3"},
        "circle_figure(result)",
        marks=pytest.mark.slow,
    ),
    ("training", {"counter": TRANSFORMER, "moving": "components", "step": "0"}, "pca_growth_figure(result, 0)"),
]


@pytest.mark.parametrize(("path", "view", "says"), VIEWS)
def test_the_code_on_a_page_draws_its_figures_again(
    path: str,
    view: dict[str, str],
    says: str,
    open_page: Callable[..., Any],
    figures: Callable[[Any], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = open_page(path, **view)
    assert says in "".join(block.value for block in app.code)
    drawn: list[go.Figure] = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: drawn.append(figure))  # noqa: PLW0108 - a method of a list is none of a figure
    snippets = [block.value for block in app.code if "figure.show()" in block.value]
    assert len(snippets) == len(figures(app))
    for snippet, shown in zip(snippets, figures(app), strict=True):
        exec(snippet, {})
        if path != "zoo":  # which shows this test's own folder too
            again = json.loads(drawn[-1].to_json())
            assert (again["layout"]["meta"], again["data"]) == (shown["layout"]["meta"], shown["data"])


def test_nonsense_in_the_url_opens_the_default_view_with_a_note(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    default = figures(open_page("zoo", drawn="true"))
    app = open_page("zoo", counter="../../etc/passwd", versus="\x00<b>", step="-1", drawn="true")
    assert not app.exception
    assert figures(app) == default
    assert app.sidebar.selectbox[0].value == TRANSFORMER
    assert all(name in app.info[0].value for name in ("counter=../../etc/passwd", "versus=", "step=-1"))
    app.sidebar.selectbox[0].select(RECURRENT).run()
    assert "counter=" not in app.info[0].value


def test_snapshots_of_a_run_drive_a_page(open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]) -> None:
    untrained = figures(open_page("behaviour", counter=TRANSFORMER, step="0"))
    best = figures(open_page("behaviour", counter=TRANSFORMER))
    assert "Right at 50 of 50" in best[0]["layout"]["meta"]["alt"]
    assert "Right at 50 of 50" not in untrained[0]["layout"]["meta"]["alt"]


def test_black_and_ink_turn_light_on_a_dark_page_and_nothing_else_does() -> None:
    figure = go.Figure(go.Scatter(x=[1], y=[2], line_color=colour_of("nope"), text=["black"]))
    figure.add_scatter(x=[1], y=[3], line_color=colour_of("sine"))
    dress(figure, "Two points.", font_color=INK)
    dark = on_dark(figure)
    assert [trace.line.color for trace in dark.data] == [ON_DARK, colour_of("sine")]
    assert dark.layout.font.color == ON_DARK
    assert (dark.layout.meta, dark.data[0].text) == (figure.layout.meta, ("black",))
    assert figure.data[0].line.color == colour_of("nope")


@pytest.mark.parametrize("counter", [TRANSFORMER, RECURRENT])
def test_a_session_walks_through_all_pages_and_back(counter: str, open_page: Callable[..., Any]) -> None:
    app = open_page(DEFAULT, counter=counter)
    for path in (*PAGES, *reversed(PAGES)):  # a widget's name must mean the same kind of value on every page
        app.switch_page(PAGES[path].script)
        app.run()
        assert not app.exception
        assert app.title[0].value == PAGES[path].title
        assert app.sidebar.selectbox[0].value == counter
