"""What interventions do to the answers, beside what a claim predicts and beside their controls."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.share_bars import BLUE, Marks, share_bars
from probes.ablation.outcomes import CausalTest, Outcome


def outcomes_figure(result: CausalTest, outcomes: Sequence[Outcome] | None = None) -> go.Figure:
    """A bar for every intervention: the share of answers that are as predicted; crosses are the controls."""
    shown = result.outcomes if outcomes is None else outcomes
    controls = [None if outcome.control is None else outcome.control.value for outcome in shown]
    return share_bars(
        [for_plotly(f"{outcome.place}: {outcome.done}, {outcome.predicted}") for outcome in shown],
        [outcome.share for outcome in shown],
        [BLUE] * len(shown),
        "answers that are as predicted",
        result.verdict.sentence,
        [Marks("control", controls, range(len(shown)))],
        name="as predicted",
    )
