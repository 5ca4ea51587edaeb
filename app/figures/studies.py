"""Pictures of studies: their panels are data, and one function draws any of them."""

import plotly.graph_objects as go

from app.figures.share_bars import LEGEND
from app.figures.style import INK, SPLIT_COLOURS, dress, error_bars
from models.architectures import architectures
from models.families import OTHER_COLOUR
from probes.studies.study import Panel, Series

# Okabe and Ito's, in the order in which series come; a dashed series has the colour of the one before it.
COLOURS = (SPLIT_COLOURS["ind"], SPLIT_COLOURS["ood"], "#009E73", "#CC79A7", "#E69F00", OTHER_COLOUR)


def panel_figure(panel: Panel) -> go.Figure:
    """A panel of a study: points with their intervals over seeds, joined by lines where x is a quantity."""
    figure = go.Figure()
    for series, colour in zip(panel.series, _colours(panel.series), strict=True):
        figure.add_scatter(**_trace(series, colour))
    figure.update_xaxes(title=panel.x_title, type="category" if panel.categories else "linear")
    figure.update_yaxes(title=panel.y_title, rangemode="tozero")
    return dress(figure, _alt(panel), legend=LEGEND, height=420)


def _trace(series: Series, colour: str) -> dict[str, object]:
    has_intervals = any(one.low != one.high for one in series.y)
    mode = {"line": "lines+markers", "dashed": "lines", "points": "markers"}[series.look]
    return {
        "x": series.x,
        "y": [one.value for one in series.y],
        "name": series.label,
        "mode": mode,
        "line": {"color": colour, "dash": "dash" if series.look == "dashed" else "solid"},
        "marker": {"color": colour, "size": 7},
        "error_y": error_bars(series.y, color=colour, thickness=1) if has_intervals else None,
        "text": series.names or None,
        "hovertemplate": ("%{text}<br>" if series.names else "") + "%{x}, %{y:.3g}<extra>%{fullData.name}</extra>",
    }


def _colours(many: tuple[Series, ...]) -> list[str]:
    """An architecture's own colour where a series is called after one, else the next of the palette."""
    colours: list[str] = []
    for series in many:
        known = architectures().get(series.label)
        if known is not None:
            colours.append(known.colour)
        elif series.look == "dashed":
            colours.append(colours[-1] if colours else INK)
        else:
            colours.append(COLOURS[len([one for one in many[: len(colours)] if one.look != "dashed"]) % len(COLOURS)])
    return colours


def _alt(panel: Panel) -> str:
    """The numbers of the picture in words; of many points, how many there are."""
    parts = []
    for series in panel.series:
        if len(series.x) > 12:
            parts.append(f"{series.label}: {len(series.x)} points")
        else:
            values = ", ".join(f"{x} {one.value:.3g}" for x, one in zip(series.x, series.y, strict=True))
            parts.append(f"{series.label}: {values}")
    return f"{panel.caption}. {panel.y_title} over {panel.x_title}. {'; '.join(parts)}."
