"""Pictures of moved position ids: which anchor predicts the answers, and which tokens the answers follow."""

import plotly.graph_objects as go

from app.figures.share_bars import BLUE, GREY, Marks, share_bars
from probes.mechanism.anchors import Anchors


def anchors_figure(result: Anchors) -> go.Figure:
    """How often each anchor predicts the answer, from the best on; crosses are the null."""
    names = [score.name for score in result.anchors]
    best = BLUE if result.stands_out else GREY
    nulls = [None if score.permuted is None else score.permuted.value for score in result.anchors]
    return share_bars(
        names,
        [score.accuracy for score in result.anchors],
        [best] + [GREY] * (len(names) - 1),
        "answers to moved position ids that are as predicted",
        f"Share of answers that each anchor predicts. {result.verdict.sentence}",
        [Marks("predictions for other rows", nulls, range(len(names)))],
    )


def moves_figure(result: Anchors) -> go.Figure:
    """What each kind of move does to the answers: how many follow it, and how many change at all."""
    names = [f"{move.tokens} token" if move.tokens == "own" else move.tokens for move in result.moves]
    listed = ", ".join(f"{name} {move.follows.value:.0%}" for name, move in zip(names, result.moves, strict=True))
    changes = [move.changes.value for move in result.moves]
    return share_bars(
        names,
        [move.follows for move in result.moves],
        [BLUE] * len(names),
        "answers",
        f"Share of answers that follow when position ids of these tokens are moved: {listed}.",
        [Marks("change at all", changes, range(len(names)), "circle-open", GREY)],
        name="follow the move",
    )
