"""The page States, and its pictures of where a state goes and what a transplanted one does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shipped import shipped

from app.figures.edited_rows import transplanted_row_figure
from app.figures.states import OUTSIDE, circle_figure, trajectory_figure, turning_figure
from app.figures.strip import ACROSS, Lane, strip_figure
from app.figures.style import cyclic_colours
from probes.mechanism.transplants import Transplant
from probes.reading.state_trajectory import Circle, StateTrajectory

POSITIONS = np.arange(1, 31)


def trajectory(modulus: int = 10, turns: int = 1, base: int | None = 10) -> StateTrajectory:
    """States on a perfect circle."""
    angle = 2 * np.pi * turns * POSITIONS / modulus
    xy = np.stack([np.cos(angle), np.sin(angle)], 1)
    circle = Circle(modulus, turns, 0.9, POSITIONS, xy, POSITIONS <= 15)
    counts = tuple((position - 1) % (base or 100) + 1 for position in POSITIONS.tolist())
    coordinates = np.concatenate([xy, POSITIONS[:, None] / 30], 1)
    return StateTrajectory(0, "a", POSITIONS, counts, base, coordinates, np.array([0.5, 0.3, 0.2]), circle)


def test_states_lie_where_the_probe_says_and_equal_residues_have_one_colour() -> None:
    found = trajectory()
    figure = trajectory_figure(found, "position mod m", 5)
    _, points = figure.data
    np.testing.assert_array_equal(points.x, found.coordinates[:, 0])
    np.testing.assert_array_equal(points.y, found.coordinates[:, 1])
    assert list(points.marker.color) == [cyclic_colours(5)[position % 5] for position in POSITIONS]
    assert "80%" in figure.layout.meta["alt"]
    solid = trajectory_figure(found, "position mod m", 5, dimensions=3).data[1]
    np.testing.assert_array_equal(solid.z, found.coordinates[:, 2])


@pytest.mark.parametrize("base", [10, None])
def test_counts_that_begin_again_have_cyclic_colours_and_others_a_scale(base: int | None) -> None:
    marker = trajectory_figure(trajectory(base=base), "count", 7).data[1].marker
    if base is None:
        assert list(marker.color) == POSITIONS.tolist()
        assert marker.showscale
    else:
        assert marker.color[0] == marker.color[10] == cyclic_colours(10)[1]


@pytest.mark.parametrize(("turns", "second"), [(1, "1"), (3, "7"), (2, "1, 6")])
def test_residues_are_written_where_their_positions_turn_to(turns: int, second: str) -> None:
    """Of three turns in ten, the seventh position is the one that comes to a tenth of a turn."""
    names = circle_figure(trajectory(turns=turns)).data[-1]
    assert len(names.text) == 10 // np.gcd(turns, 10)
    assert names.text[1] == f"<b>{second}</b>"
    np.testing.assert_allclose(np.hypot(names.x, names.y), 1 + OUTSIDE)


def test_turning_is_drawn_between_neighbours_and_the_fitted_half_is_pale() -> None:
    figure = turning_figure(trajectory(turns=3))
    steps, radius = figure.data
    np.testing.assert_allclose(steps.y, 108)
    assert list(steps.x) == list(range(2, 31))
    np.testing.assert_allclose(radius.y, 1)
    assert [opacity < 1 for opacity in radius.marker.opacity] == [True] * 15 + [False] * 15


def test_a_strip_judges_only_what_should_be_something_and_marks_the_edited_column() -> None:
    lanes = [Lane("tokens", ("<bos>", *"aaa")), Lane("answers", tuple("7124"), (None, *"123"))]
    figure = strip_figure(lanes, "A strip.", range(4), edited=2, first=0)
    cells = figure.data[0]
    assert [list(line[:4]) for line in cells.z] == [[0, 0, 0, 0], [0, 1, 1, -1]]
    assert list(cells.text[0][:2]) == ["&lt;bos>", "a"]
    assert cells.text[1][3] == "<b><u>4</u></b>"
    assert figure.layout.yaxis.ticktext == ("tokens 0 to 3", "answers")
    (frame,) = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (1.5, 2.5, -0.5, 1.5)


def test_a_long_strip_has_several_lines_with_a_gap_between() -> None:
    words = tuple(map(str, range(ACROSS + 3)))
    figure = strip_figure([Lane("tokens", words)], "A strip.", range(len(words)), edited=ACROSS)
    assert figure.layout.yaxis.ticktext == (f"tokens 1 to {ACROSS}", "", f"tokens {ACROSS + 1} to {ACROSS + 3}")
    assert list(figure.data[0].text[2][:4]) == [*words[ACROSS:], ""]
    assert figure.layout.shapes[0].y0 == 1.5


def test_a_transplant_is_shown_from_a_little_before_it() -> None:
    words = tuple(map(str, range(60)))
    found = Transplant(words, 30, 2, words, words, words, words)
    assert transplanted_row_figure(found).layout.yaxis.ticktext[0] == "tokens 27 to 46"
    at_the_end = Transplant(words, 58, 2, words, words, words, words)
    assert transplanted_row_figure(at_the_end).layout.yaxis.ticktext[0] == "tokens 41 to 60"


def test_a_transplanted_memory_goes_on_from_its_own_count(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("states", counter=shipped("mod10/lstm-1L"), source="7", position="14")
    lanes = figures(app)[-1]["data"][0]["text"]
    assert lanes[1][4:8] == ["4", "5", "6", "7"]  # right, from token 14 on
    assert lanes[4][4:8] == ["4", "8", "9", "10"]  # after it, with the memory of token 7
    app.slider(key="source").set_value(20).run()
    assert figures(app)[-1]["data"][0]["text"][4][4:8] == ["4", "1", "2", "3"]


def test_the_circle_is_one_and_a_transformer_has_none(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("states", counter=shipped("mod10/rnn-1L"), picture="circle")
    circle, turning, _ = figures(app)
    assert "goes round: 36" in circle["layout"]["meta"]["alt"]
    assert turning["layout"]["shapes"][0]["y0"] == 36
    app.slider(key="modulus").set_value(9).run()
    assert "does not go round in 9 tokens" in figures(app)[0]["layout"]["meta"]["alt"]
    transformer = open_page("states", counter=shipped("mod10/ape-2L"))
    assert not figures(transformer)
    assert "a transformer has no state" in transformer.info[0].value
