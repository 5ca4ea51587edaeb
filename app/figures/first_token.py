"""How well the first token and the shift are read, layer by site, next to untrained counters."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import DIVERGING, SEQUENTIAL, SPLIT_COLOURS, dress, error_bars
from models.errors import CountLensError
from probes.reading.first_token import FirstToken, Reading

QUANTITIES = {"first": "“I am the first token”: balanced accuracy", "shift": "the shift: R²"}
UNTRAINED_COLOUR = "#999999"
CHARACTER_WIDTH = 7  # pixels, of a label


def first_token_figure(result: FirstToken) -> go.Figure:
    """Heat maps of layer by site: the first token above, the shift below; trained left, untrained (mean) right."""
    kinds = list(dict.fromkeys(at.site.kind for at in result.sites))
    layers = sorted({at.site.layer or 0 for at in result.sites})
    floor = {
        "first": "",
        "shift": "" if result.ignores_positions else f"; {result.own_pid:.2f} by a token's own position id",
    }
    titles = [
        f"{name}<br><sup>{counters}{floor[quantity]}</sup>"
        for quantity, name in QUANTITIES.items()
        for counters in ("trained", "untrained (mean)")
    ]
    figure = make_subplots(2, 2, subplot_titles=titles, horizontal_spacing=0.06, vertical_spacing=0.36)
    for row, quantity in enumerate(QUANTITIES, start=1):
        for column, trained in enumerate((True, False), start=1):
            values = np.full((len(layers), len(kinds)), np.nan)
            for at in result.sites:
                reading: Reading = getattr(at, quantity)
                cell = layers.index(at.site.layer or 0), kinds.index(at.site.kind)
                values[cell] = reading.value if trained else np.mean(reading.untrained)
            figure.add_trace(_heat_map(values, kinds, layers, quantity), row=row, col=column)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False, tickangle=-40, type="category")
    figure.update_annotations(font_size=13)
    figure.update_layout(
        coloraxis={"colorscale": DIVERGING, "cmin": 0, "cmax": 1, "colorbar": _bar(0.8)},
        coloraxis2={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1, "colorbar": _bar(0.2)},
    )
    alt = f"Linear probes at every layer and site, of this counter and of untrained ones: {result.verdict.sentence}."
    return dress(figure, alt, height=320 + 80 * len(layers), margin={"l": 60, "r": 20, "t": 60, "b": 70})


def readings_figure(result: FirstToken, quantity: str = "first", layer: int | None = None) -> go.Figure:
    """One line per site: how well "first" or "shift" is read, with its 95 % interval, beside untrained counters."""
    shown = [at for at in result.sites if layer is None or at.site.layer == layer]
    if not shown:
        raise CountLensError(f"layer {layer} was not looked at: {sorted({at.site.layer or 0 for at in result.sites})}")
    labels = [at.site.label for at in shown]
    readings: list[Reading] = [getattr(at, quantity) for at in shown]
    figure = go.Figure()
    figure.add_scatter(
        x=[value for reading in readings for value in reading.untrained],
        y=[label for label, reading in zip(labels, readings, strict=True) for _ in reading.untrained],
        mode="markers",
        marker={"symbol": "line-ns", "size": 11, "line": {"color": UNTRAINED_COLOUR, "width": 2}},
        hovertemplate="%{y}: %{x:.2f}<extra>untrained</extra>",
        name="untrained",
    )
    figure.add_scatter(
        x=[reading.value for reading in readings],
        y=labels,
        mode="markers",
        marker={"size": 9, "color": SPLIT_COLOURS["ind"]},
        error_x=error_bars(readings, width=3),
        hovertemplate="%{y}: %{x:.2f}<extra>this counter</extra>",
        name="this counter",
    )
    floor, name = (0.5, "chance") if quantity == "first" else (result.own_pid, "by a token's own position id")
    line = {"color": SPLIT_COLOURS["ood"], "dash": "dash", "width": 1.5}
    figure.add_vline(x=floor, line=line, name=name, showlegend=True)
    figure.update_xaxes(
        title=QUANTITIES[quantity], range=[min(0.0, *(reading.low for reading in readings)) - 0.03, 1.03]
    )
    figure.update_yaxes(range=[len(labels) - 0.4, -0.6], dtick=1, ticksuffix=" ")
    best = max(shown, key=lambda at: getattr(at, quantity).choosing)
    alt = (
        f"{QUANTITIES[quantity]} of linear probes at {len(shown)} sites, and of untrained counters; best at "
        f"{best.site.label}: {getattr(best, quantity).say('.2f')}."
    )
    legend = {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top"}
    margin = {"l": CHARACTER_WIDTH * max(map(len, labels)) + 20}
    return dress(figure, alt, height=130 + 24 * len(labels), legend=legend, margin=margin)


def _heat_map(values: np.ndarray, kinds: list[str], layers: list[int], quantity: str) -> go.Heatmap:
    texts = [["" if np.isnan(value) else f"{value:z.2f}" for value in line] for line in values]
    return go.Heatmap(
        z=values,
        x=kinds,
        y=[f"layer {layer}" for layer in layers],
        text=texts,
        texttemplate="%{text}",
        coloraxis="coloraxis" if quantity == "first" else "coloraxis2",
        hovertemplate="%{y} %{x}: %{z:.2f}<extra></extra>",
        xgap=2,
        ygap=2,
    )


def _bar(middle: float) -> dict[str, float]:
    return {"len": 0.42, "y": middle, "thickness": 12}
