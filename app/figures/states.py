"""The states of a recurrent counter: where they go, and how they go round."""

from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import INK, SEQUENTIAL, cyclic_colours, dress
from models.families import OTHER_COLOUR
from probes.reading.state_trajectory import Circle, StateTrajectory

COLOURS = ("position mod m", "count")  # what colours mean
PATH = "rgba(128, 128, 128, 0.35)"
OUTSIDE = 0.2  # how far from everything the circle's residues are written
CAMERA = {"eye": {"x": 1.6, "y": 1.6, "z": 0.9}, "center": {"x": 0, "y": 0, "z": -0.15}}
GHOST = 0.35  # opacity of what a plane was fitted on


def trajectory_figure(result: StateTrajectory, colours: str, modulus: int, dimensions: int = 2) -> go.Figure:
    """The states on their first two or three principal components, joined in the order of their tokens."""
    names = [f"component {number + 1} ({share:.0%})" for number, share in enumerate(result.variance)]
    drawn = dict(zip("xyz"[:dimensions], result.coordinates.T, strict=False))
    scatter = go.Scatter if dimensions == 2 else go.Scatter3d
    figure = go.Figure(scatter(**drawn, mode="lines", line={"color": PATH, "width": 1.5}, hoverinfo="skip"))
    marker = _marker(result, colours, modulus) | {"size": 8 if dimensions == 2 else 4}
    hover = {"text": _hovers(result, modulus), "hovertemplate": "%{text}<extra></extra>"}
    figure.add_trace(scatter(**drawn, mode="markers", marker=marker, **hover))
    if dimensions == 2:
        figure.update_layout(xaxis_title=names[0], yaxis_title=names[1], height=480)
    else:
        axes = {f"{axis}axis": {"title": {"text": name}} for axis, name in zip("xyz", names, strict=True)}
        figure.update_layout(scene=axes | {"aspectmode": "cube", "camera": CAMERA}, height=560)
    by = "count" if colours == "count" else f"position mod {modulus}"
    alt = (
        f"States of layer {result.layer} after each of {len(result.positions)} equal tokens, on {dimensions} principal "
        f"components that hold {result.variance[:dimensions].sum():.0%} of their variance, coloured by {by}. "
        f"{result.verdict.sentence}"
    )
    return dress(figure, alt, showlegend=False)


def circle_figure(result: StateTrajectory) -> go.Figure:
    """The states on the plane in which they go round best; pale are those on which the plane was found."""
    circle = _circle(result)
    figure = go.Figure()
    turn = np.linspace(0, 2 * np.pi, 181)
    figure.add_scatter(x=np.cos(turn), y=np.sin(turn), mode="lines", line={"color": PATH}, hoverinfo="skip")
    x, y = circle.xy.T
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": PATH, "width": 1}, hoverinfo="skip")
    colours = np.array(cyclic_colours(circle.modulus))[circle.positions % circle.modulus]
    radii = np.hypot(x, y)
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"color": colours, "size": 9, "opacity": np.where(circle.fitted, GHOST, 1.0)},
        customdata=np.stack([circle.positions, circle.angles, radii], 1),
        hovertemplate="position %{customdata[0]}: %{customdata[1]:.0f}°, radius %{customdata[2]:.2f}<extra></extra>",
    )
    places, outside = _places(circle), OUTSIDE + max(1.0, float(radii.max()))
    figure.add_scatter(
        x=[outside * np.cos(angle) for angle, _ in places],
        y=[outside * np.sin(angle) for angle, _ in places],
        mode="text",
        text=[f"<b>{name}</b>" for _, name in places],
        textfont={"size": 15, "color": INK},
        hoverinfo="skip",
    )
    reach = outside + OUTSIDE
    figure.update_xaxes(
        range=[-reach, reach], zeroline=False, constrain="domain", title=f"numbers: position mod {circle.modulus}"
    )
    figure.update_yaxes(range=[-reach, reach], zeroline=False, scaleanchor="x", constrain="domain")
    alt = f"States on the plane in which they go round best, radius 1 being the first half's. {result.verdict.sentence}"
    return dress(figure, alt, showlegend=False, height=480)


def turning_figure(result: StateTrajectory) -> go.Figure:
    """By how much each token turns the state, and its radius; pale is the half on which the plane was found."""
    circle = _circle(result)
    titles = ["turn per token, in degrees", "radius, relative to the first half of the row"]
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.2, subplot_titles=titles)
    opacity = np.where(circle.fitted, GHOST, 1.0)
    series = ((circle.positions[1:], circle.steps, opacity[1:]), (circle.positions, np.hypot(*circle.xy.T), opacity))
    for row, (at, values, shade) in enumerate(series, start=1):
        figure.add_scatter(
            x=at,
            y=values,
            mode="lines+markers",
            line={"color": PATH, "width": 1},
            marker={"color": OTHER_COLOUR, "size": 6, "opacity": shade},
            hovertemplate=f"position %{{x}}: %{{y:.{3 - 2 * (row == 1)}f}}<extra></extra>",
            row=row,
            col=1,
        )
    dash = {"color": INK, "dash": "dash", "width": 1}
    figure.add_hline(y=circle.step, line=dash, row=1, col=1)
    figure.add_hline(y=1, line=dash, row=2, col=1)
    figure.update_yaxes(range=[-185, 185], dtick=90, row=1, col=1)
    figure.update_yaxes(rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title="position", row=2, col=1)
    for annotation in figure.layout.annotations[: len(titles)]:
        annotation.update(x=0, xanchor="left", font={"size": 13, "color": INK})
    alt = f"Angle per token, {circle.step:.0f}° where it goes round, and radius, at each position. "
    return dress(figure, alt + result.verdict.sentence, showlegend=False, height=360)


def _circle(result: StateTrajectory) -> Circle:
    assert result.circle is not None, "states that only drift have no circle"
    return result.circle


def _places(circle: Circle) -> list[tuple[float, str]]:
    """Angles on the circle, each with the residues of the positions that belong there."""
    at = sorted((residue * circle.turns % circle.modulus, residue) for residue in range(circle.modulus))
    return [
        (2 * np.pi * place / circle.modulus, ", ".join(str(residue) for _, residue in there))
        for place, there in groupby(at, key=lambda pair: pair[0])
    ]


def _marker(result: StateTrajectory, colours: str, modulus: int) -> dict[str, Any]:
    counts = np.array([np.nan if count is None else count for count in result.counts])
    if colours == "count" and result.base is None:
        return {"color": counts, "colorscale": SEQUENTIAL, "showscale": True, "colorbar": {"title": "count"}}
    number = result.base if colours == "count" and result.base is not None else modulus
    residues = (np.nan_to_num(counts) if colours == "count" else result.positions).astype(int) % number
    return {"color": np.array(cyclic_colours(number))[residues]}


def _hovers(result: StateTrajectory, modulus: int) -> list[str]:
    return [
        f"position {position} (mod {modulus}: {position % modulus})" + ("" if count is None else f"<br>count {count}")
        for position, count in zip(result.positions, result.counts, strict=True)
    ]
