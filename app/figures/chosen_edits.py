"""Accuracy at each position with the first token edited, with the second one edited, and untouched."""

import numpy as np
import plotly.graph_objects as go

from app.figures.style import FAINT, INK, dress
from probes.ablation.chosen_edits import ChosenEdits

LINES = {  # by field of the result: name, colour, width, dash
    "clean": ("untouched", INK, 5, "solid"),
    "edited": ("first token edited", "#D55E00", 2, "solid"),
    "control": ("second token edited", "#56B4E9", 2, "dot"),
}


def edited_figure(result: ChosenEdits) -> go.Figure:
    """Percent right at each position: a broad line untouched, and narrow ones with each of the two edits."""
    scored = result.rows_at > 0
    positions = np.arange(1, len(scored) + 1)[scored]
    figure = go.Figure()
    for field, (name, colour, width, dash) in LINES.items():
        figure.add_scatter(
            x=positions,
            y=getattr(result, field)[scored],
            name=name,
            mode="lines",
            line={"color": colour, "width": width, "dash": dash},
            opacity=0.35 if field == "clean" else 1,
            hovertemplate="position %{x}: %{y:.0f} %",
        )
    figure.add_vrect(x0=0.5, x1=result.trained_up_to + 0.5, fillcolor=FAINT, line_width=0, layer="below")
    figure.add_annotation(x=result.trained_up_to / 2, y=106, text="trained", showarrow=False)
    figure.add_annotation(x=result.trained_up_to + 4, y=106, text="extrapolated", showarrow=False, xanchor="left")
    figure.update_layout(
        xaxis_title="position in the row",
        yaxis={"title": "accuracy (%)", "range": [-3, 110]},
        legend={"orientation": "h", "yref": "container", "y": 1, "yanchor": "top"},
        hovermode="x unified",
        height=400,
    )
    return dress(figure, f"Lines of the accuracy at each position. {result.verdict.sentence}")
