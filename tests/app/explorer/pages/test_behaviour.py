"""The page Behaviour, and its picture of a row."""

from collections.abc import Callable
from typing import Any

import pytest
from shipped import shipped

from app.explorer.pages.behaviour import OWN_MOVE, PRESETS
from app.figures.cells import WRONG_COLOUR
from app.figures.edited_rows import moved_row_figure
from app.figures.row import ACROSS, row_figure
from models.checkpoint import load_counter
from probes.mechanism.moved_row import Move, MovedRow, moved_row
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


def lanes(figure: dict[str, Any]) -> dict[str, list[str]]:
    """The words of each lane, without the marks of those that are not as they should be."""
    names = figure["layout"]["yaxis"]["ticktext"]
    found: dict[str, list[str]] = {}
    for name, words in zip(names, figure["data"][0]["text"], strict=True):
        lane = "tokens" if name.startswith("tokens") else name
        found.setdefault(lane, []).extend(word.replace("<b><u>", "").replace("</u></b>", "") for word in words if word)
    return found


@pytest.mark.parametrize(("preset", "moved"), [(name, size) for name, (size, _) in PRESETS.items()])
def test_a_preset_moves_position_ids_and_shows_the_answers_before_and_after(
    preset: str, moved: int | None, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    ape = shipped("mod10/ape-2L")
    app = open_page("behaviour", counter=ape, length="30", shift="20", move=preset)
    shown = lanes(figures(app)[0])
    by = PRESETS[preset][1]
    expected = moved_row(load_counter(ape), "a " * 30, [Move(1, moved or 30, by)], shift=20)
    ids = [str(20 + at + by * (moved is None or at < moved)) for at in range(30)]
    assert shown["position ids"] == ids == [str(position) for position in expected.after.position_ids]
    assert shown["before"] == list(expected.before.answers)
    assert shown["after"] == list(expected.after.answers)
    assert shown["own - first id"] == list(expected.paper or ())
    assert any(expected.verdict.sentence in block.value.replace("\\", "") for block in app.markdown)


def test_single_tokens_of_a_typed_row_can_be_moved_by_a_link_and_by_hand(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    view = {"tokens": "a a a a a a", "move": OWN_MOVE, "move_from": "5", "move_to": "4", "move_by": "7", "shift": "3"}
    app = open_page("behaviour", counter=shipped("mod10/ape-2L"), **view)
    assert lanes(figures(app)[0])["position ids"] == ["3", "4", "5", "13", "14", "8"]
    app.slider(key="move_by").set_value(-1).run()
    assert lanes(figures(app)[0])["position ids"] == ["3", "4", "5", "5", "6", "8"]


def test_a_move_out_of_the_counters_positions_is_explained(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("behaviour", counter=shipped("mod10/ape-2L"), shift="78", length="50", move="+10 everywhere")
    assert "position id 128 of token 41 is outside 0..127" in app.info[0].value
    assert len(figures(app)) == 1  # accuracy at each position stays


def test_a_recurrent_counter_beside_a_transformer_has_nothing_moved(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page(
        "behaviour", counter=shipped("mod10/ape-2L"), versus=shipped("mod10/lstm-1L"), move="first token +3"
    )
    shown = figures(app)
    assert "position ids are moved" in shown[0]["layout"]["meta"]["alt"]
    assert "position ids are moved" not in shown[2]["layout"]["meta"]["alt"]
    alone = open_page("behaviour", counter=shipped("mod10/lstm-1L"), move="first token +3")
    assert "move" not in [box.key for box in alone.selectbox]


def test_moved_ids_are_marked_and_so_are_answers_that_are_wrong() -> None:
    after = Answers(("a",) * 3, (5, 1, 2), ("1", "2", "3"), ("1", "7", "3"), (0.9,) * 3, (0.9,) * 3)
    before = Answers(("a",) * 3, (0, 1, 2), ("1", "2", "3"), ("1", "2", "3"), (0.9,) * 3, (0.9,) * 3)
    cells = moved_row_figure(MovedRow(before, after, ("1", "7", "8"))).data[0]
    _, ids, _, said, now, paper = cells.z
    assert (list(ids[:3]), list(said[:3]), list(now[:3]), list(paper[:3])) == (
        [-1, 1, 1],
        [1, 1, 1],
        [1, -1, 1],
        [1, -1, -1],
    )
