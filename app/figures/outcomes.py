"""What interventions do to the answers, beside what a claim predicts and beside their controls."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.style import INK, SPLIT_COLOURS, dress, error_bars
from probes.ablation.outcomes import CausalTest, Outcome

BAR, CONTROL = SPLIT_COLOURS["ind"], SPLIT_COLOURS["ood"]
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


def outcomes_figure(result: CausalTest, outcomes: Sequence[Outcome] | None = None) -> go.Figure:
    """A bar for every intervention: the share of answers that are as predicted; crosses are the controls."""
    shown = result.outcomes if outcomes is None else outcomes
    names = [for_plotly(f"{one.place}: {one.done}, {one.predicted}") for one in shown]
    figure = go.Figure(
        go.Bar(
            x=[one.share.value for one in shown],
            y=names,
            orientation="h",
            marker_color=BAR,
            name="as predicted",
            error_x=error_bars([one.share for one in shown], color=INK) if shown else None,
            hovertemplate="%{y}<br>%{x:.0%}<extra></extra>",
        )
    )
    figure.add_scatter(
        x=[None if one.control is None else one.control.value for one in shown],
        y=names,
        mode="markers",
        name="control",
        marker={"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": CONTROL}},
    )
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title="answers that are as predicted")
    figure.update_yaxes(autorange="reversed", automargin=True)
    height = 24 * len(shown) + 130
    return dress(figure, result.verdict.sentence, height=height, legend=LEGEND, margin={"l": 10, "r": 10})
