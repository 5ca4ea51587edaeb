"""Pictures that move: one frame per snapshot of training, with a slider and a button that plays them.

Axes are those of all frames, so that nothing jumps but what changed. The page's server is not asked again.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures.style import FAINT, INK, SPLIT_COLOURS, cyclic_colours, dress
from probes.over_training.growth import AccuracyGrowth, PcaGrowth

PATH = "rgba(128, 128, 128, 0.35)"
FRAME_MS = 400
HEIGHT = 520
NOW = {"mode": "immediate", "fromcurrent": True, "transition": {"duration": 0}}
PLAY = {
    **{"type": "buttons", "showactive": False, "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "pad": {"t": 77}},
    "buttons": [
        {
            "label": "▶",
            "method": "animate",
            "args": [None, {"frame": {"duration": FRAME_MS, "redraw": False}, **NOW}],
        }
    ],
}


def accuracy_growth_figure(result: AccuracyGrowth, step: int | None = None) -> go.Figure:
    """Accuracy at each position at every snapshot; the picture begins at the snapshot of a step, or at the last."""
    x = np.arange(1, result.percent.shape[1] + 1)
    hover = "position %{x}: %{y:.0f} %<extra></extra>"
    line = {"color": SPLIT_COLOURS["ind"], "width": 2}
    shown = go.Scatter(x=x, mode="lines", line=line, hovertemplate=hover)
    figure = _animated(shown, [{"y": percent} for percent in result.percent], result.steps, step)
    figure.add_vrect(x0=0.5, x1=result.trained_up_to + 0.5, fillcolor=FAINT, line_width=0, layer="below")
    figure.update_xaxes(title="position in the row", range=[0.5, len(x) + 0.5])
    figure.update_yaxes(title="accuracy (%)", range=[-3, 103])
    alt = (
        f"Accuracy at each position over {len(result.steps)} snapshots of training, shaded up to the training length. "
    )
    return dress(figure, alt + result.verdict.sentence, showlegend=False)


def pca_growth_figure(result: PcaGrowth, step: int | None = None) -> go.Figure:
    """The states at every snapshot on the last one's plane, coloured by PID mod m."""
    colours = np.array(cyclic_colours(result.modulus))[result.pids % result.modulus]
    texts = [f"position id {pid} (mod {result.modulus}: {pid % result.modulus})" for pid in result.pids]
    points = go.Scatter(
        mode="lines+markers",
        line={"color": PATH, "width": 1},
        marker={"color": colours, "size": 8},
        text=texts,
        hovertemplate="%{text}<extra></extra>",
    )
    moves = [{"x": x, "y": y} for x, y in result.coordinates.astype(np.float32).transpose(0, 2, 1)]
    figure = _animated(points, moves, result.steps, step)
    for axis, (low, high) in zip(("x", "y"), _ranges(result), strict=True):
        number = "xy".index(axis) + 1
        figure.update_layout({f"{axis}axis": {"title": f"component {number} of the last step", "range": [low, high]}})
    alt = (
        f"States of equal tokens at {result.site.label} over {len(result.steps)} snapshots of training, on the last "
        f"one's two principal components, coloured by PID mod {result.modulus}. {result.verdict.sentence}"
    )
    return dress(figure, alt, showlegend=False)


def _ranges(result: PcaGrowth) -> np.ndarray:
    """Of each component, what all frames together take up, with a margin."""
    low, high = result.coordinates.min((0, 1)), result.coordinates.max((0, 1))
    margin = np.maximum(0.05 * (high - low), 1e-6)
    return np.stack([low - margin, high + margin], 1)


def _animated(
    trace: go.Scatter, moves: Sequence[dict[str, np.ndarray]], steps: np.ndarray, step: int | None
) -> go.Figure:
    """The trace with what moves in it, a frame per snapshot, and the slider.

    The first picture is that of the latest snapshot that is not after the step.
    """
    first = len(steps) - 1 if step is None else max(int((steps <= step).sum()) - 1, 0)
    names = [f"{number:,}" for number in steps]
    figure = go.Figure(
        data=trace.update(moves[first]),
        frames=[
            go.Frame(data=[{"type": "scatter"} | move], name=name) for move, name in zip(moves, names, strict=True)
        ],
    )
    return figure.update_layout(height=HEIGHT, sliders=[_slider(names, first)], updatemenus=[PLAY])


def _slider(names: Sequence[str], active: int) -> dict[str, Any]:
    """A slider over the frames of these names."""
    stop = {"frame": {"duration": 0, "redraw": False}, **NOW}
    return {
        "active": active,
        "steps": [{"method": "animate", "label": name, "args": [[name], stop]} for name in names],
        "currentvalue": {"prefix": "step ", "font": {"color": INK}},
        "font": {"color": "rgba(0, 0, 0, 0)"},  # the number above the slider says enough
        "ticklen": 0,
        "x": 0.12,
        "len": 0.88,
        "pad": {"t": 60},
    }
