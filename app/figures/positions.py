"""Accuracy at each position, with the border between training and extrapolation."""

from dataclasses import dataclass

import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.style import FAINT, dress, line_of
from training.evaluate import Scores


@dataclass(frozen=True)
class Curve:
    """One counter's scores, under the name by which the figure shows it."""

    name: str
    architecture: str
    scores: Scores


def accuracy_figure(curves: list[Curve], trained_up_to: int, title: str = "") -> go.Figure:
    """Percent right at each counted position: in distribution up to the border, extrapolated beyond it."""
    figure = go.Figure()
    for curve in curves:
        both = zip(curve.scores.by_position["ind"], curve.scores.by_position["ood"], strict=False)
        merged = [ind if ind is not None else ood for ind, ood in both]
        merged += curve.scores.by_position["ood"][len(merged) :]
        figure.add_scatter(
            x=list(range(1, len(merged) + 1)),
            y=merged,
            name=for_plotly(curve.name),
            mode="lines",
            line=line_of(curve.architecture) | {"width": 2},
        )
    figure.add_vrect(x0=0.5, x1=trained_up_to + 0.5, fillcolor=FAINT, line_width=0, layer="below")
    figure.add_annotation(x=trained_up_to / 2, y=106, text="trained", showarrow=False)
    figure.add_annotation(x=trained_up_to + 4, y=106, text="extrapolated", showarrow=False, xanchor="left")
    figure.update_layout(
        xaxis_title="position in the row",
        yaxis={"title": "accuracy (%)", "range": [-3, 110]},
        legend={"orientation": "h", "y": -0.2},
    )
    scores = [f"{c.name} {c.scores.ind:.1f} % IND and {c.scores.ood:.1f} % OOD" for c in curves]
    return dress(figure, f"Accuracy at each position, trained up to {trained_up_to}: {'; '.join(scores)}.", title)
