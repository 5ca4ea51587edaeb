"""The page Patching: the map is the probe's, and one patch is shown token by token."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from shipped import shipped

from app.escape import for_markdown
from app.figures.edited_rows import patched_row_figure
from models import load_counter
from probes.patching.pairs import pair_patch
from probes.patching.patched_row import PatchedRow

TRANSFORMER, RECURRENT = shipped("mod10/ape-2L"), shipped("selective/lstm-1L")


def cells(figure: dict[str, Any]) -> list[list[str]]:
    """The words in a strip."""
    words: list[list[str]] = figure["data"][0]["text"]
    return words


def test_answers_are_judged_by_the_rows_own_labels_and_the_partners_are_shown_where_they_differ() -> None:
    row = PatchedRow("z", {"layer": 0, "pos": 1}, *(tuple(words) for words in ("aa", "12", "aa", "12", "12", "11")))
    same = patched_row_figure(row)
    assert [list(line[:2]) for line in same.data[0].z] == [[0, 0], [0, 0], [1, 1], [1, -1]]
    assert same.layout.yaxis.ticktext[0] == "tokens 0 to 1"
    assert same.layout.shapes[0].x0 == 0.5
    other = PatchedRow("z", {"layer": 0}, *(tuple(words) for words in ("aa", "12", "ab", "11", "12", "11")))
    assert patched_row_figure(other).layout.yaxis.ticktext[-1] == "partner's right"
    assert not patched_row_figure(other).layout.shapes


def test_the_map_is_the_probes_and_a_patch_of_the_first_token_breaks_what_follows(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("patching", counter=TRANSFORMER)
    heat, strip = figures(app)
    found = pair_patch(load_counter("mod10/ape-2L"), "shift", ["resid_pre"], batch=8, length=20)
    drawn = heat["data"][0]["z"]
    values = np.frombuffer(base64.b64decode(drawn["bdata"]), drawn["dtype"]).reshape(2, 20)
    np.testing.assert_allclose(values, found.effect("resid_pre"))
    assert any(for_markdown(found.finding("resid_pre")) in block.value for block in app.markdown)
    assert sum("<u>" in word for word in cells(strip)[3]) > 10
    app.slider(key="position").set_value(19).run()
    assert not any("<u>" in word for word in cells(figures(app)[1])[3][:19])


def test_only_what_fits_the_pair_and_the_site_is_offered(open_page: Callable[..., Any]) -> None:
    app = open_page("patching", counter=TRANSFORMER, site="head_z")
    assert app.selectbox(key="pair").options == ["shift"]
    assert "logit_diff" not in app.selectbox(key="metric").options
    assert "position" not in [slider.key for slider in app.slider]
    assert app.slider(key="head").max == 1
    app.selectbox(key="site").select("z").run()
    assert app.slider(key="position").max == 19


def test_a_recurrent_counters_state_brings_the_other_rows_answer_back(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("patching", counter=RECURRENT, site="state_step", position="8")
    assert app.selectbox(key="pair").value == "swap"
    words = cells(figures(app)[1])
    assert [word.removeprefix("<b><u>").removesuffix("</u></b>") for word in words[3]] == words[4]  # the partner's
    assert words[1] != words[4]


def test_a_counter_without_a_pair_says_why_and_still_has_its_mechanism(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("patching", counter=shipped("mod10/rnn-1L"))
    assert "no pair of equally long rows" in app.info[0].value
    assert not figures(app)
    app.toggle(key="mechanism").set_value(True).run()
    (shares,) = figures(app)
    assert "edits of the memory that come out as claimed" in shares["layout"]["meta"]["alt"]
