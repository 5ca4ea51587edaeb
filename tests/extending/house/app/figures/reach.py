"""How far a counter gets before its first mistake."""

import plotly.graph_objects as go

from app.figures.style import INK, colour_of, dress
from models.families import OTHER_COLOUR
from probes.reading.reach import Reach


def reach_figure(result: Reach) -> go.Figure:
    """Histograms of the right answers before the first mistake, and of an untrained counter."""
    figure = go.Figure()
    for name, values, colour in (
        ("counter", result.reach, colour_of(result.architecture)),
        ("untrained", result.untrained, OTHER_COLOUR),
    ):
        figure.add_histogram(x=values, name=name, marker_color=colour, opacity=0.7, xbins={"size": 1})
    figure.add_vline(result.trained_up_to, line_color=INK, line_dash="dash")
    figure.update_xaxes(title="right answers before the first mistake", rangemode="tozero")
    figure.update_yaxes(title="rows")
    alt = f"Right answers before the first mistake; dashed: the training length. {result.verdict.sentence}"
    return dress(figure, alt, barmode="overlay")
