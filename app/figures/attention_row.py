"""Where each token of a row looks: heat maps of queries by keys, one a head."""

import math

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import SEQUENTIAL, SHARES_SCALE, dress
from probes.attention_row import AttentionRow

HEADS_A_LINE = 4
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
    heads = range(len(values)) if head is None else [head]
    n_lines, n_columns = math.ceil(len(heads) / HEADS_A_LINE), min(len(heads), HEADS_A_LINE)
    figure = make_subplots(
        n_lines,
        n_columns,
        subplot_titles=[f"H{number}" for number in heads],
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.02,
        vertical_spacing=0.24 / n_lines,
    )
    names = [f"{place}: {token.replace('<', '&lt;')}" for place, token in enumerate(row.tokens, start=1)]
    for place, table in enumerate(values):
        figure.add_heatmap(
            x=names,
            y=names,
            z=table,
            coloraxis="coloraxis",
            hoverongaps=False,
            hovertemplate=f"query %{{y}}, key %{{x}}: {name} %{{z:.3g}}<extra></extra>",
            row=place // HEADS_A_LINE + 1,
            col=place % HEADS_A_LINE + 1,
        )
    alone = len(heads) == 1
    axis = {"type": "category", "showgrid": False, "tickfont_size": 10, "nticks": 10 if alone else 4}
    # Where there is no room for the names of keys, those of queries beside them are the same.
    figure.update_xaxes(**axis, tickangle=0, constrain="domain", showticklabels=alone)
    figure.update_yaxes(**axis, autorange="reversed", scaleanchor="x" if alone else None, constrain="domain")
    figure.update_xaxes(title="key", row=n_lines)
    figure.update_yaxes(title="query", col=1)
    bar = {"title": name, "thickness": 14}
    height = 90 + (ALONE_PIXELS if alone else PANEL_PIXELS * n_lines)
    return figure.update_layout(coloraxis=scale | {"colorbar": bar}, height=height)


def _what(row: AttentionRow, head: int | None) -> str:
    which = f"of layer {row.layer}" if head is None else f"{row.layer}.{head}"
    shown = "Heat maps, one a head" if head is None else "Heat map of head"
    return f"{shown} {which}, over a row of {len(row.tokens)} tokens from position id {row.position_ids[0]} on"
