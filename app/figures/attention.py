"""How far positions move attention scores: the paper's panels of token pairs, and counters side by side."""

import math

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.escape import for_plotly
from app.figures.style import SHARES_SCALE, colour_of, dress, error_bars
from probes.reading.attention_variation import AttentionVariation, VariationComparison
from probes.stats import Interval

PANELS_PER_ROW = 4
PANEL_PIXELS = 210
MOST_NAMED = 20  # tokens up to which every one is written beside the axes


def variation_panels(result: AttentionVariation, layer: int = 0) -> go.Figure:
    """One panel per head: the std over positions of the score of each (source, target), on one colour scale.

    A cross marks pairs that no row holds.
    """
    std = result.std[result.index(layer)]
    n_rows, n_columns = math.ceil(len(std) / PANELS_PER_ROW), min(len(std), PANELS_PER_ROW)
    figure = make_subplots(
        n_rows,
        n_columns,
        subplot_titles=[f"H{head}" for head in range(len(std))],
        shared_yaxes=True,
        shared_xaxes=True,
        horizontal_spacing=0.02,
        vertical_spacing=0.3 / n_rows**2,
    )
    few = len(result.tokens) <= MOST_NAMED
    crosses = {"text": np.where(result.occurs, "", "×"), "texttemplate": "%{text}", "textfont": {"size": 9}}
    for head, values in enumerate(std):
        figure.add_heatmap(
            x=result.tokens,
            y=result.tokens,
            z=values,
            coloraxis="coloraxis",
            hovertemplate="source %{y}, target %{x}: std %{z:.3g}<extra></extra>",
            row=head // PANELS_PER_ROW + 1,
            col=head % PANELS_PER_ROW + 1,
            **(crosses | {"xgap": 1, "ygap": 1} if few else {}),
        )
    axis = {"type": "category", "showgrid": False, "tickfont": {"size": 9}}
    figure.update_xaxes(**axis, tickangle=0)
    figure.update_yaxes(**axis, autorange="reversed", tickmode="linear" if few else "auto")
    figure.update_xaxes(title="target", row=n_rows)
    figure.update_yaxes(title="source", col=1)
    figure.update_layout(
        coloraxis={
            "colorscale": SHARES_SCALE,
            "cmin": 0,
            "cmax": max(float(np.nanmax(std, initial=0)), 1e-6),  # a scale needs two ends even where all is 0
            "colorbar": {"title": "std", "thickness": 14},
        },
        height=110 + PANEL_PIXELS * n_rows,
    )
    return dress(figure, _panels_alt(result, layer))


def _panels_alt(result: AttentionVariation, layer: int) -> str:
    summary = result.at(layer)
    by_head = result.std[result.index(layer)][:, result.occurs]
    means = ", ".join(f"{value:.2g}" for value in np.nanmean(by_head, axis=1))
    ratio = "" if math.isnan(summary.ratio) else f"; in all {summary.ratio:.2g} of the spread between token pairs"
    return (
        f"Heat maps, one per head of layer {layer} of the {result.architecture} counter on {result.task}, of the std "
        f"over positions of the attention score between each source and target token; means by head: {means}{ratio}."
    )


def variation_bars(comparison: VariationComparison) -> go.Figure:
    """Each counter's mean std against the spread between token pairs, with its 95 % interval."""
    names = [for_plotly(name) for name in comparison.names]
    intervals = [Interval(summary.ratio, summary.low, summary.high) for summary in comparison.layers]
    figure = go.Figure()
    figure.add_bar(
        x=names,
        y=[ratio.value for ratio in intervals],
        marker_color=[colour_of(name) for name in comparison.architectures],
        error_y=error_bars(intervals),
        width=0.6,
        hovertemplate="%{x}: %{y:.3g}<extra></extra>",
    )
    for name, ratio in zip(names, intervals, strict=True):
        text, height = ("one token pair", 0.0) if math.isnan(ratio.value) else (f"{ratio.value:.2g}", ratio.high)
        figure.add_annotation(x=name, y=height, text=text, showarrow=False, yanchor="bottom", yshift=2)
    layer = comparison.layers[0].layer
    figure.update_layout(
        xaxis={"type": "category"},
        yaxis={"title": "mean std over positions / spread between token pairs", "rangemode": "tozero"},
        showlegend=False,
        height=420,
    )
    listed = ", ".join(f"{name} {ratio.value:.2g}" for name, ratio in zip(comparison.names, intervals, strict=True))
    alt = f"Bars of how far positions move attention scores at layer {layer}, relative to token pairs: {listed}."
    return dress(figure, alt)
