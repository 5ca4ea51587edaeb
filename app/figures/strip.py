"""Rows of words above each other, token by token: what was read, what is right, answers before and after an edit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.cells import ON_CELL, RIGHT_COLOUR, UNSCORED_COLOUR, WRONG_COLOUR
from app.figures.style import dress

ACROSS = 20  # tokens per line
LANE_HEIGHT = 26  # pixels
FRAME_COLOUR = "#0072B2"  # seen beside light cells and on a dark page
BLANK = None  # a lane between two lines


@dataclass(frozen=True)
class Lane:
    """One word per token. A word is coloured as right or wrong where `should_be` has one for it."""

    name: str
    words: tuple[str | None, ...]  # None: there is none
    should_be: tuple[str | None, ...] | None = None


def strip_figure(
    lanes: Sequence[Lane], alt: str, columns: range, edited: int | None = None, first: int = 1
) -> go.Figure:
    """The lanes at these columns, in lines of 20 tokens; blue is as it should be, orange and underlined is not.

    A frame stands around the column that was edited. `first` is the number of column 0.
    """
    lines = [columns[start : start + ACROSS] for start in range(0, len(columns), ACROSS)]
    shades: list[list[int | None]] = []
    texts: list[list[str]] = []
    names: list[str] = []
    for number, line in enumerate(lines):
        if number:
            names.append("")
            shades.append([BLANK] * ACROSS)
            texts.append([""] * ACROSS)
        for lane in lanes:
            names.append(lane.name if lane is not lanes[0] else f"{lane.name} {line[0] + first} to {line[-1] + first}")
            shades.append([_shade(lane, at) for at in line] + [BLANK] * (ACROSS - len(line)))
            texts.append([_text(lane, at) for at in line] + [""] * (ACROSS - len(line)))
    figure = go.Figure(judged_cells(shades, texts, hoverinfo="skip", ygap=2, textfont_size=12))
    if edited is not None and edited in columns:
        in_line, column = divmod(columns.index(edited), ACROSS)
        top = in_line * (len(lanes) + 1) - 0.5
        outline = {"color": FRAME_COLOUR, "width": 3}
        figure.add_shape(x0=column - 0.5, x1=column + 0.5, y0=top, y1=top + len(lanes), line=outline)
    across = min(ACROSS, len(columns))
    figure.update_xaxes(visible=False, range=[-0.55, across - 0.45])
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    height = LANE_HEIGHT * len(names) + 40
    return dress(figure, alt, height=height, margin={"l": 110, "r": 10, "t": 10, "b": 20}, font_size=12)


def judged_cells(shades: Sequence[Sequence[int | None]], texts: Sequence[Sequence[str]], **style: Any) -> go.Heatmap:
    """Cells of words, coloured by what they are: 1 right, -1 wrong, 0 not scored."""
    scale = [[0.0, WRONG_COLOUR], [0.5, UNSCORED_COLOUR], [1.0, RIGHT_COLOUR]]
    words = {"text": texts, "texttemplate": "%{text}", "textfont_color": ON_CELL}
    return go.Heatmap(z=shades, colorscale=scale, zmin=-1, zmax=1, xgap=2, showscale=False, **words, **style)


def _shade(lane: Lane, at: int) -> int | None:
    word = lane.words[at]
    if word is None:
        return BLANK
    if lane.should_be is None or lane.should_be[at] is None:
        return 0
    return 1 if word == lane.should_be[at] else -1


def _text(lane: Lane, at: int) -> str:
    word = for_plotly(lane.words[at] or "")
    return f"<b><u>{word}</u></b>" if _shade(lane, at) == -1 else word
