"""The page Behaviour, and its picture of a row."""

from collections.abc import Callable
from typing import Any

from shipped import shipped

from app.figures.cells import WRONG_COLOUR
from app.figures.row import ACROSS, row_figure
from probes.reading.answers import Answers

ANSWERS = Answers(
    tokens=("<bos>", *"aaaaaaaaaaa"),
    position_ids=tuple(range(5, 17)),
    labels=(None, *"12345678901"),
    answers=("7", *"12345678902"),
    probability=(0.5,) * 12,
    label_probability=(None, *(0.25,) * 11),
)


def test_a_row_is_drawn_in_lines_with_its_mistakes_marked() -> None:
    figure = row_figure(ANSWERS)
    cells = figure.data[0]
    assert [len(line) for line in cells.z] == [ACROSS, 2]
    assert (*cells.z[0][:2], cells.z[1][1]) == (0, 1, -1)
    assert cells.colorscale[0] == (0.0, WRONG_COLOUR)
    assert tuple(cells.text[0][:2]) == ("&lt;bos><br>·", "a<br>1 ✓")
    assert cells.text[1][1] == "a<br>2<br>≠ 1"
    assert cells.customdata[1][1] == "position 12, position id 16<br>says 2 with 50.0 %<br>right is 1, with 25.0 %"
    assert "first mistake at position 12" in figure.layout.meta["alt"]


def test_a_typed_row_is_answered_and_a_wrong_one_explained(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("behaviour", counter=shipped("mod10/ape-2L"), tokens="a a a")
    assert figures(app)[0]["data"][0]["text"] == [["a<br>1 ✓", "a<br>2 ✓", "a<br>3 ✓"]]
    app.text_input(key="tokens").input("a b a").run()
    assert "unknown token 'b'" in app.info[0].value
    assert len(figures(app)) == 1  # accuracy at each position has nothing to do with the row


def test_the_shift_moves_position_ids_and_a_recurrent_counter_has_none(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page(
        "behaviour", counter=shipped("mod10/spe-2L"), versus=shipped("mod10/lstm-1L"), length="60", shift="7"
    )
    assert app.slider(key="shift").max == 128 - 60
    shown = figures(app)
    assert "position id 7<" in shown[0]["data"][0]["customdata"][0][0]
    assert "position id 0<" in shown[2]["data"][0]["customdata"][0][0]
    assert "Right at 60 of 60" in shown[2]["layout"]["meta"]["alt"]
    alone = open_page("behaviour", counter=shipped("mod10/lstm-1L"))
    assert "shift" not in [slider.key for slider in alone.slider]


def test_another_random_row_is_drawn_where_rows_differ(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("behaviour", counter=shipped("selective/lstm-1L"), length="20")
    before = figures(app)[0]["data"][0]["text"]
    app.slider(key="seed").set_value(1).run()
    assert figures(app)[0]["data"][0]["text"] != before
