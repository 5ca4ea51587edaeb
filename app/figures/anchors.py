"""Pictures of moved position ids: which anchor predicts the answers, and which tokens the answers follow."""

import plotly.graph_objects as go

from app.figures.style import INK, SPLIT_COLOURS, dress
from probes.mechanism.anchors import Anchors
from probes.stats import Interval

FOUND, OTHER, NULL = SPLIT_COLOURS["ind"], SPLIT_COLOURS["aux"], SPLIT_COLOURS["ood"]
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


def anchors_figure(result: Anchors) -> go.Figure:
    """How often each anchor predicts the answer, from the best on; crosses are the null."""
    names = [score.name for score in result.anchors]
    best = FOUND if result.stands_out else OTHER
    bar = _bar([score.accuracy for score in result.anchors], names, [best] + [OTHER] * (len(names) - 1))
    figure = go.Figure(bar.update(showlegend=False))
    figure.add_scatter(
        x=[None if score.permuted is None else score.permuted.value for score in result.anchors],
        y=names,
        mode="markers",
        name="predictions for other rows",
        marker={"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": NULL}},
    )
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title="answers to moved PIDs that are as predicted")
    alt = f"Share of answers that each anchor predicts. {result.verdict.sentence}"
    return _dress(figure, alt, len(names))


def moves_figure(result: Anchors) -> go.Figure:
    """What each kind of move does to the answers: how many follow it, and how many change at all."""
    names = [f"{move.tokens} token" if move.tokens == "own" else move.tokens for move in result.moves]
    bar = _bar([move.follows for move in result.moves], names, [FOUND] * len(names))
    figure = go.Figure(bar.update(name="follow the move"))
    figure.add_scatter(
        x=[move.changes.value for move in result.moves],
        y=names,
        mode="markers",
        name="change at all",
        marker={"symbol": "circle-open", "size": 9, "line": {"width": 2}, "color": OTHER},
    )
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title="answers")
    listed = ", ".join(f"{name} {move.follows.value:.0%}" for name, move in zip(names, result.moves, strict=True))
    return _dress(figure, f"Share of answers that follow when PIDs of these tokens are moved: {listed}.", len(names))


def _bar(shares: list[Interval], names: list[str], colours: list[str]) -> go.Bar:
    return go.Bar(
        x=[share.value for share in shares],
        y=names,
        orientation="h",
        marker_color=colours,
        error_x={
            "type": "data",
            "symmetric": False,
            "color": INK,
            "array": [share.high - share.value for share in shares],
            "arrayminus": [share.value - share.low for share in shares],
        },
        hovertemplate="%{y}<br>%{x:.0%}<extra></extra>",
    )


def _dress(figure: go.Figure, alt: str, lines: int) -> go.Figure:
    figure.update_yaxes(autorange="reversed", automargin=True)
    return dress(figure, alt, height=24 * lines + 130, legend=LEGEND, margin={"l": 10, "r": 10})
