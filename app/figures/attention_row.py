"""Where each token of a row looks: heat maps of queries by keys, one per head."""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.style import SEQUENTIAL, SHARES_SCALE, dress
from probes.reading.attention_row import AttentionRow

HEADS_PER_LINE = 4
BETWEEN_COLUMNS, BETWEEN_LINES = 0.02, 0.24  # of the whole
PANEL_PIXELS, ALONE_PIXELS = 190, 360
SATURATES = 0.98  # share of the cells whose colours tell them apart


def pattern_figure(row: AttentionRow, head: int | None = None) -> go.Figure:
    """The share of attention that each query (down) gives each key (across), of one head or of all.

    The darkest colour stands for the largest shares, however large: the first queries have few keys to share among.
    """
    chosen = row if head is None else row.head(head)
    values = np.where(np.isfinite(chosen.scores), chosen.pattern, np.nan)
    scale = {"colorscale": SHARES_SCALE, "cmin": 0, "cmax": float(np.nanquantile(values, SATURATES))}
    figure = _heat_maps(chosen, values, head, "share", scale)
    return dress(figure, f"{_what(row, head)}, the share of attention to each key. {chosen.verdict.sentence}")


def scores_figure(row: AttentionRow, head: int | None = None) -> go.Figure:
    """The score of each query (down) and key (across) before the softmax, of one head or of all."""
    chosen = row if head is None else row.head(head)
    values = np.where(np.isfinite(chosen.scores), chosen.scores, np.nan)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    scale = {"colorscale": SEQUENTIAL, "cmin": low, "cmax": max(high, low + 1e-6)}  # a scale needs two ends
    figure = _heat_maps(chosen, values, head, "score", scale)
    return dress(figure, f"{_what(row, head)}, scores before the softmax, from {low:.3g} to {high:.3g}.")


def _heat_maps(
    row: AttentionRow, values: np.ndarray, head: int | None, name: str, scale: dict[str, object]
) -> go.Figure:
    """One map per head. The layout is written out: plotly's subplots take ten times as long to build."""
    names = [f"{place}: {for_plotly(token)}" for place, token in enumerate(row.tokens, start=1)]
    cells = {"type": "heatmap", "x": names, "y": names, "coloraxis": "coloraxis", "hoverongaps": False}
    values = values.astype(np.float32)  # half as much to send, and no colour tells the difference
    cells["hovertemplate"] = f"query %{{y}}, key %{{x}}: {name} %{{z:.3g}}<extra></extra>"
    maps: list[dict[str, Any]] = []
    titles: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": titles}
    for place, table in enumerate(values):
        number = "" if place == 0 else str(place + 1)
        maps.append(cells | {"z": table, "xaxis": f"x{number}", "yaxis": f"y{number}"})
        x, y = _axes(place, len(values), number)
        layout |= {f"xaxis{number}": x, f"yaxis{number}": y}
        at = {"x": sum(x["domain"]) / 2, "y": y["domain"][1], "xref": "paper", "yref": "paper", "yanchor": "bottom"}
        titles.append(at | {"text": f"H{place if head is None else head}", "showarrow": False})
    height = 90 + (ALONE_PIXELS if len(values) == 1 else PANEL_PIXELS * math.ceil(len(values) / HEADS_PER_LINE))
    layout |= {"coloraxis": scale | {"colorbar": {"title": name, "thickness": 14}}, "height": height}
    return go.Figure({"data": maps, "layout": layout})


def _axes(place: int, n_heads: int, number: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both axes of one of several maps."""
    alone = n_heads == 1
    line, column = divmod(place, HEADS_PER_LINE)
    n_lines, n_columns = math.ceil(n_heads / HEADS_PER_LINE), min(n_heads, HEADS_PER_LINE)
    axis = {"type": "category", "showgrid": False, "tickfont": {"size": 10}, "nticks": 10 if alone else 4}
    # Where there is no room for the names of keys, those of queries beside them are the same.
    x = {
        "domain": _share(column, n_columns, BETWEEN_COLUMNS),
        "anchor": f"y{number}",
        "tickangle": 0,
        "constrain": "domain",
        "showticklabels": alone,
        "title": {"text": "key" if place + HEADS_PER_LINE >= n_heads else ""},
    }
    y = {
        "domain": _share(n_lines - 1 - line, n_lines, BETWEEN_LINES / n_lines),
        "anchor": f"x{number}",
        "autorange": "reversed",
        "constrain": "domain",
        "scaleanchor": "x" if alone else None,
        "showticklabels": column == 0,
        "title": {"text": "query" if column == 0 else ""},
    }
    return axis | x, axis | y


def _share(place: int, places: int, between: float) -> tuple[float, float]:
    """Where one of several equal parts of a unit begins and ends, with gaps between them.

    >>> _share(1, 2, 0.2)
    (0.6, 1.0)
    """
    width = (1 - between * (places - 1)) / places
    start = place * (width + between)
    return round(start, 4), round(start + width, 4)


def _what(row: AttentionRow, head: int | None) -> str:
    which = f"of layer {row.layer}" if head is None else f"{row.layer}.{head}"
    shown = "Heat maps, one per head" if head is None else "Heat map of head"
    return f"{shown} {which}, over a row of {len(row.tokens)} tokens from position id {row.position_ids[0]} on"
