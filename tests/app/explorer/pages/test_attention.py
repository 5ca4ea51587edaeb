"""The page Attention: its heat maps are the counter's own attention over the row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shipped import shipped

from app.figures.attention_row import pattern_figure, scores_figure
from models import load_counter
from probes.reading.attention_row import AttentionRow, attention_row

Open, Figures = Callable[..., Any], Callable[[Any], list[Any]]
INF = np.inf


def planted() -> AttentionRow:
    """Two heads: one looks at the first token only, the other shares its attention evenly."""
    first = [[0.0, -INF, -INF], [50.0, 0.0, -INF], [50.0, 0.0, 0.0]]
    evenly = [[3.0, -INF, -INF], [3.0, 3.0, -INF], [3.0, 3.0, 3.0]]
    return AttentionRow(("<bos>", "a", "a"), (4, 5, 6), 1, np.array([first, evenly]))


def test_rows_of_the_pattern_sum_to_1_and_hide_what_cannot_be_seen() -> None:
    figure = pattern_figure(planted())
    first, evenly = (np.array(trace.z, dtype=float) for trace in figure.data)
    np.testing.assert_allclose(np.nansum(first, 1), 1)
    np.testing.assert_allclose(first[:, 0], 1)
    np.testing.assert_allclose(evenly[2], 1 / 3)
    assert np.isnan(evenly[0, 1:]).all()
    assert list(figure.data[0].x) == ["1: &lt;bos>", "2: a", "3: a"]
    assert [title.text for title in figure.layout.annotations] == ["H0", "H1"]
    assert "from position id 4 on" in figure.layout.meta["alt"]


def test_scores_are_drawn_as_they_are() -> None:
    figure = scores_figure(planted(), head=0)
    (drawn,) = figure.data
    np.testing.assert_array_equal(drawn.z, [[0, np.nan, np.nan], [50, 0, np.nan], [50, 0, 0]])
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 50)
    assert "from 0 to 50" in figure.layout.meta["alt"]
    even = scores_figure(planted(), head=1).layout.coloraxis
    assert even.cmax > even.cmin


def test_a_typed_row_is_looked_at_in_the_chosen_head(open_page: Open, figures: Figures) -> None:
    counter, row = shipped("selective-bos/rope-1L"), "<bos> 3 1 3 2"
    app = open_page("attention", counter=counter, tokens=row, head="2", shift="9")
    pattern, scores, variation = figures(app)
    found = attention_row(load_counter(counter), row, layer=0, shift=9).head(2)
    assert len(pattern["data"]) == len(scores["data"]) == 1
    assert (
        pattern["layout"]["meta"]["alt"]
        == pattern_figure(attention_row(load_counter(counter), row, 0, 9), 2).layout.meta["alt"]
    )
    assert found.verdict.sentence in pattern["layout"]["meta"]["alt"]
    assert len(variation["data"]) == 4  # of all heads
    app.selectbox(key="head").select("all").run()
    assert len(figures(app)[0]["data"]) == 4


def test_a_row_that_is_wrong_leaves_the_variation(open_page: Open, figures: Figures) -> None:
    app = open_page("attention", counter=shipped("selective-bos/rope-1L"), tokens="<bos> x")
    assert "unknown token 'x'" in app.info[0].value
    assert len(figures(app)) == 1


def test_one_kind_of_token_has_its_variation_in_a_sentence(open_page: Open, figures: Figures) -> None:
    app = open_page("attention", counter=shipped("mod10/ape-2L"), length="10", layer="1")
    assert len(figures(app)) == 2
    assert "vary with position by" in app.info[0].value


@pytest.mark.parametrize("versus", ["none", shipped("mod10/ape-2L")])
def test_a_recurrent_counter_says_why_it_has_none(open_page: Open, figures: Figures, versus: str) -> None:
    app = open_page("attention", counter=shipped("mod10/lstm-1L"), versus=versus)
    assert "LSTM has no attention" in app.info[0].value
    assert len(figures(app)) == (0 if versus == "none" else 2)
    assert not app.slider
