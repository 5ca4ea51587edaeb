"""Heat maps of what patches between the rows of a pair do: one per site, with colours around 0."""

from itertools import product

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import DIVERGING, dress
from probes.patching.engine import NOTICEABLE
from probes.patching.pairs import PairPatching

AXIS_NAMES = {"layer": "layer", "pos": "position", "head": "head"}
ROW_HEIGHT = 34
FEW = 16  # cells in a row that have room for their numbers


def patching_caption(result: PairPatching, site: str) -> str:
    """What the heat map of a site shows."""
    what = f"Share of the difference in {result.metric}" if result.relative else f"Change of {result.metric}"
    axes = [AXIS_NAMES[axis] for axis in result.grids[site].axes]
    return f"{what} that a patch of {site} makes, by {' and '.join(axes)}"


def patching_figure(result: PairPatching, site: str) -> go.Figure:
    """The effect of every patch of a site: layer by position or by head, or such a panel for each layer."""
    grid = result.grids[site]
    across = "pos" if "pos" in grid.axes else "head"
    down = [axis for axis in grid.axes if axis != across]
    panels = grid.axes["layer"] if len(down) == 2 else (None,)
    labels = [f"{down[-1]} {index}" for index in grid.axes[down[-1]]] if down else [site]
    n_axes = len(grid.axes)
    effect, hover, places = (
        np.moveaxis(cells, list(grid.axes).index(across), n_axes - 1).reshape(
            len(panels), len(labels), -1, *cells.shape[n_axes:]
        )
        for cells in (result.effect(site), _hovers(result, site), _places(result, site))
    )
    titles = None if panels == (None,) else [f"layer {layer}" for layer in panels]
    figure = make_subplots(len(panels), 1, subplot_titles=titles, shared_xaxes=True, vertical_spacing=0.2 / len(panels))
    for panel in range(len(panels)):
        figure.add_heatmap(
            x=grid.axes[across],
            y=labels,
            z=effect[panel],
            text=hover[panel],
            customdata=places[panel].tolist(),
            hovertemplate="%{text}<extra></extra>",
            texttemplate="%{z:+.2f}" if len(grid.axes[across]) <= FEW else None,
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            row=1 + panel,
            col=1,
        )
    gaps = bool((np.diff(grid.axes[across]) != 1).any())  # which an axis of numbers would fill with wide cells
    figure.update_xaxes(showgrid=False, type="category" if gaps else "linear")
    if across == "head":
        figure.update_xaxes(dtick=1)
    figure.update_xaxes(title=AXIS_NAMES[across], row=len(panels), col=1)
    figure.update_yaxes(showgrid=False, autorange="reversed", ticklabelstandoff=6)
    limit = _limit(result)
    ends = (-limit, 0, limit)  # there is no room for more where layers are few
    bar = {"title": _unit(result), "thickness": 14, "tickvals": ends, "ticktext": [f"{end:.2g}" for end in ends]}
    figure.update_layout(
        coloraxis={"colorscale": DIVERGING, "cmin": -limit, "cmid": 0, "cmax": limit, "colorbar": bar},
        height=150 + (ROW_HEIGHT * len(labels) + 20) * len(panels),
    )
    alt = f"Heat map. {patching_caption(result, site)}, between rows of the pair {result.pair}. {result.finding(site)}"
    return dress(figure, alt)


def _places(result: PairPatching, site: str) -> np.ndarray:
    """The indices of each cell, in the order of the grid's axes: what a click on it means."""
    return np.stack(np.meshgrid(*result.grids[site].axes.values(), indexing="ij"), axis=-1)


def _hovers(result: PairPatching, site: str) -> np.ndarray:
    """What each cell says: where it is, the metric there with its standard error, and the effect."""
    grid, effect = result.grids[site], result.effect(site)
    numbers = zip(grid.values.ravel(), grid.stderr.ravel(), effect.ravel(), strict=True)
    texts = np.empty(effect.size, dtype=object)
    for cell, (place, (value, error, moved)) in enumerate(zip(product(*grid.axes.values()), numbers, strict=True)):
        where = ", ".join(f"{axis} {index}" for axis, index in zip(grid.axes, place, strict=True))
        give = f" ± {error:.3f}" if np.isfinite(error) else ""  # one row alone has none
        texts[cell] = f"{where}<br>{grid.metric} {value:.3f}{give}<br>{_unit(result)} {moved:+.3f}"
    return texts.reshape(effect.shape)


def _unit(result: PairPatching) -> str:
    return "share" if result.relative else "change"


def _limit(result: PairPatching) -> float:
    """Where colours end: at the largest effect of all sites, so that their figures compare."""
    return max(NOTICEABLE, *(float(np.abs(result.effect(site)).max()) for site in result.grids))
