"""Horizontal bars of shares with their intervals, and marks beside them: how claims, anchors and edits come out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from app.figures.style import INK, SPLIT_COLOURS, dress, error_bars

if TYPE_CHECKING:  # needs torch
    from probes.stats import Interval

BLUE, GREY, ORANGE = SPLIT_COLOURS["ind"], SPLIT_COLOURS["aux"], SPLIT_COLOURS["ood"]
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
LINE_HEIGHT = 26  # pixels


@dataclass(frozen=True)
class Marks:
    """Points beside the bars, such as nulls."""

    name: str
    values: Sequence[float | None]
    at: Sequence[int]  # which bar each stands beside
    symbol: str = "x-thin"
    colour: str = ORANGE
    hovers: Sequence[str] | None = None  # the name of each point; None: that of the bar


def share_bars(
    labels: Sequence[str],
    shares: Sequence["Interval"],
    colours: Sequence[str],
    title: str,
    alt: str,
    marks: Sequence[Marks] = (),
    name: str | None = None,
) -> go.Figure:
    """A bar for each share from 0 to 100 %, the first on top; labels may be equal. A `name` puts bars in the legend."""
    places = list(range(len(labels)))
    figure = go.Figure(
        go.Bar(
            x=[share.value for share in shares],
            y=places,
            orientation="h",
            marker_color=list(colours),
            error_x=error_bars(shares, color=INK) if shares else None,
            customdata=list(labels),
            hovertemplate="%{customdata}<br>%{x:.0%}<extra></extra>",
            name=name,
            showlegend=name is not None,
        )
    )
    for each in marks:
        figure.add_scatter(**_trace(each, labels))
    figure.update_yaxes(tickmode="array", tickvals=places, ticktext=list(labels), autorange="reversed", automargin=True)
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title=title)
    height = LINE_HEIGHT * len(labels) + 130
    return dress(figure, alt, height=height, legend=LEGEND, margin={"l": 10, "r": 10})


def _trace(marks: Marks, labels: Sequence[str]) -> dict[str, Any]:
    return {
        "x": list(marks.values),
        "y": list(marks.at),
        "customdata": marks.hovers or [labels[place] for place in marks.at],
        "mode": "markers",
        "name": marks.name,
        "marker": {
            "symbol": marks.symbol,
            "size": 9,
            "color": marks.colour,
            "line": {"width": 2, "color": marks.colour},
        },
        "hovertemplate": "%{customdata}: %{x:.0%}<extra></extra>",
    }
