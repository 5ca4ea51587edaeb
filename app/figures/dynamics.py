"""Scores over training steps, with the steps between which each rises."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import FAINT, INK, SPLIT_COLOURS, dress
from models.families import OTHER_COLOUR
from probes.over_training.dynamics import REFERENCE, Dynamics
from probes.over_training.order import Order, OrderOverRuns
from probes.over_training.rises import Rise
from probes.stats import say_p

BEFORE_THE_FIRST = 0.5  # where step 0 goes on a logarithmic axis
PANEL_HEIGHT = 130
PLAIN_NAMES = {"ind": "accuracy at trained lengths", "ood": "accuracy in longer rows"}  # of curves
ORDER_COLOURS: dict[Order, str] = {
    "before": SPLIT_COLOURS["ind"],
    "overlapping": "#CCCCCC",
    "after": SPLIT_COLOURS["ood"],
}


def dynamics_figure(result: Dynamics, step: int | None = None) -> go.Figure:
    """One panel per curve, over the logarithm of the step. Dashed: where its rise begins and ends; shaded: that of OOD.

    A line stands at the step, if one is given.
    """
    names = list(result.curves)
    figure = make_subplots(len(names), 1, shared_xaxes=True, vertical_spacing=0.25 / len(names), subplot_titles=names)
    x = np.maximum(result.steps, BEFORE_THE_FIRST)
    rises = {name: rise for name, rise in result.rises.items() if rise.sure}
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
        shapes += _shapes(row, rises.get(name), rises.get(REFERENCE), step, colour)
    figure.update_layout(shapes=shapes)  # all at once: add_vline takes long for each
    for annotation, name in zip(figure.layout.annotations[: len(names)], names, strict=True):
        annotation.update(text=_heading(name, result.rises[name]), x=0, xanchor="left", font={"size": 11, "color": INK})
    ticks = _ticks(int(result.steps[-1]))
    figure.update_xaxes(
        type="log", tickvals=[max(step, BEFORE_THE_FIRST) for step in ticks], ticktext=[f"{step:,}" for step in ticks]
    )
    figure.update_xaxes(title="training step", row=len(names), col=1)
    figure.update_layout(showlegend=False, height=90 + PANEL_HEIGHT * len(names))
    return dress(figure, f"Curves over training steps. {result.verdict.sentence}")


def _shapes(
    row: int, rise: Rise | None, reference: Rise | None, step: int | None, colour: str
) -> Iterator[dict[str, Any]]:
    """What stands behind the curve of a panel: where OOD accuracy rises, where it does itself, and the step."""
    if reference is not None:
        low = max(reference.begin, BEFORE_THE_FIRST)
        yield _across(row, low, reference.end, type="rect", fillcolor=FAINT, line_width=0, layer="below")
    if rise is not None:
        dashed = {"color": colour, "dash": "dash", "width": 1.5}
        for at in (max(rise.begin, BEFORE_THE_FIRST), rise.end):
            yield _across(row, at, at, type="line", line=dashed)
    if step is not None:
        at = max(step, BEFORE_THE_FIRST)
        yield _across(row, at, at, type="line", line={"color": INK, "width": 2})


def _across(row: int, x0: float, x1: float, **style: Any) -> dict[str, Any]:
    """A shape from the bottom to the top of a panel."""
    number = "" if row == 1 else str(row)
    return {"xref": f"x{number}", "yref": f"y{number} domain", "x0": x0, "x1": x1, "y0": 0, "y1": 1} | style


def _heading(curve: str, rise: Rise) -> str:
    name = PLAIN_NAMES.get(curve, curve)
    if not rise.sure:
        return f"<b>{name}</b>: no sure rise ({say_p(rise.p)})"
    return f"<b>{name}</b>: rises from {rise.begin:,} to {rise.end:,} ({say_p(rise.p)})"


def _ticks(last: int) -> list[int]:
    """0, powers of ten, and the last step, unless a power is too near to it."""
    powers = [10**power for power in range(12) if 10**power < last / 1.5]
    return [0, *powers, last]


def order_figure(result: OrderOverRuns) -> go.Figure:
    """One bar per curve: in how many runs its rise ended before that of OOD, overlapped with it, or came after."""
    figure = go.Figure()
    for order, colour in ORDER_COLOURS.items():
        figure.add_bar(
            y=[curve.name for curve in result.curves],
            x=[curve.orders.count(order) for curve in result.curves],
            orientation="h",
            name=order,
            marker={"color": colour},
            hovertemplate=f"%{{y}}: {order} in %{{x}} runs<extra></extra>",
        )
    figure.update_xaxes(title="runs", dtick=1 if len(result.runs) < 20 else None)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(barmode="stack", height=140 + 34 * len(result.curves), legend={"orientation": "h", "y": 1.15})
    return dress(figure, f"Order of rises over runs. {result.verdict.sentence}")
