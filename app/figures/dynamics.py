"""Scores over training steps, with the steps at which each has done half of its rise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import FAINT, INK, SPLIT_COLOURS, dress
from models.families import OTHER_COLOUR
from probes.over_training.dynamics import REFERENCE, Dynamics, HalfRise

BEFORE_THE_FIRST = 0.5  # where step 0 goes on a logarithmic axis
PANEL_HEIGHT = 130


def dynamics_figure(result: Dynamics, step: int | None = None) -> go.Figure:
    """A panel a curve over the logarithm of the step; dashed: half-rise; shaded: where that of OOD lies.

    A line stands at the step, if one is given.
    """
    names = list(result.curves)
    figure = make_subplots(len(names), 1, shared_xaxes=True, vertical_spacing=0.25 / len(names), subplot_titles=names)
    x = np.maximum(result.steps, BEFORE_THE_FIRST)
    halves = result.half_rises
    shapes: list[dict[str, Any]] = []
    for row, name in enumerate(names, start=1):
        colour = SPLIT_COLOURS.get(name, OTHER_COLOUR)
        figure.add_scatter(
            x=x,
            y=result.curves[name],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            customdata=result.steps,
            hovertemplate="step %{customdata:,}: %{y:.3g}<extra></extra>",
            row=row,
            col=1,
        )
        shapes += _shapes(row, halves[name], halves.get(REFERENCE), step, colour)
    figure.update_layout(shapes=shapes)  # all at once: add_vline takes long for each
    for annotation, name in zip(figure.layout.annotations[: len(names)], names, strict=True):
        annotation.update(
            text=_heading(result, name, halves[name]), x=0, xanchor="left", font={"size": 12, "color": INK}
        )
    ticks = _ticks(int(result.steps[-1]))
    figure.update_xaxes(
        type="log", tickvals=[max(step, BEFORE_THE_FIRST) for step in ticks], ticktext=[f"{step:,}" for step in ticks]
    )
    figure.update_xaxes(title="training step", row=len(names), col=1)
    figure.update_layout(showlegend=False, height=90 + PANEL_HEIGHT * len(names))
    return dress(figure, f"Curves over training steps. {result.verdict.sentence}")


def _shapes(
    row: int, half: HalfRise | None, reference: HalfRise | None, step: int | None, colour: str
) -> Iterator[dict[str, Any]]:
    """What stands behind the curve of a panel: where OOD accuracy rises, its own half-rise, and the step."""
    if reference is not None:
        low = max(reference.low, BEFORE_THE_FIRST)
        yield _across(row, low, reference.high, type="rect", fillcolor=FAINT, line_width=0, layer="below")
    if half is not None:
        dashed = {"color": colour, "dash": "dash", "width": 1.5}
        yield _across(row, half.step, half.step, type="line", line=dashed)
    if step is not None:
        at = max(step, BEFORE_THE_FIRST)
        yield _across(row, at, at, type="line", line={"color": INK, "width": 2})


def _across(row: int, x0: float, x1: float, **style: Any) -> dict[str, Any]:
    """A shape from the bottom to the top of a panel."""
    number = "" if row == 1 else str(row)
    return {"xref": f"x{number}", "yref": f"y{number} domain", "x0": x0, "x1": x1, "y0": 0, "y1": 1} | style


def _heading(result: Dynamics, name: str, half: HalfRise | None) -> str:
    if half is None:
        return f"<b>{name}</b>: no rise"
    order = result.order(name) if REFERENCE in result.curves and name != REFERENCE else None
    beside = "" if order is None else f", {order} {REFERENCE}"
    return f"<b>{name}</b>: halfway at {half.step:,.0f}{beside}"


def _ticks(last: int) -> list[int]:
    """0, powers of ten, and the last step, unless a power is too near to it."""
    powers = [10**power for power in range(12) if 10**power < last / 1.5]
    return [0, *powers, last]
