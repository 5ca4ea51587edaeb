"""Pictures of the mechanism page: claims by implied distance, hypotheses by seed, and single swaps."""

import numpy as np
import plotly.graph_objects as go

from app.figures.strip import Lane, strip_figure
from app.figures.style import SHARES_SCALE, dress
from probes.mechanism.swapped_tokens import SwappedTokens
from probes.mechanism.verdict import Mechanisms

DISTANCES = ("trained", "below 1", "beyond", "longer rows")
ROW_HEIGHT = 26


def distances_figure(result: Mechanisms) -> go.Figure:
    """How often each claim comes out, by the distance from the beginning that the swap implies.

    A click on a cell chooses its hypothesis and variable.
    """
    frame = result.to_frame().rename(columns={"accuracy": "trained"})
    frame = frame[frame["place"] != ""].drop_duplicates(["claim", "place"])
    labels = [f"{line.hypothesis}: {line.claim}, {line.place}" for line in frame.itertuples()]
    columns = [name for name in DISTANCES if name in frame and frame[name].notna().any()]
    shares = frame[columns].astype(float).to_numpy()
    figure = go.Figure(
        go.Heatmap(
            z=[[None if np.isnan(share) else share for share in row] for row in shares.tolist()],
            x=columns,
            y=labels,
            zmin=0,
            zmax=1,
            colorscale=SHARES_SCALE,
            texttemplate="%{z:.0%}",
            customdata=[[[f"{line.hypothesis}: {line.claim}"]] * len(columns) for line in frame.itertuples()],
            hovertemplate="%{y}<br>%{x}: %{z:.0%}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    figure.update_xaxes(side="top", showgrid=False)
    alt = f"Share of swaps that come out, for {len(labels)} claims, by implied distance: {', '.join(columns)}."
    return dress(figure, alt, height=ROW_HEIGHT * len(labels) + 90, margin={"l": 10, "r": 10, "t": 40, "b": 10})


def hypotheses_by_seed(*results: Mechanisms) -> go.Figure:
    """How often the worst claim of each hypothesis comes out, seed by seed."""
    names = list(dict.fromkeys(tested.name for result in results for tested in result.hypotheses))
    scores = [{tested.name: (tested.score.value, tested.grade) for tested in result.hypotheses} for result in results]
    seeds = [f"seed {number}" for number in range(1, len(results) + 1)]
    figure = go.Figure(
        go.Heatmap(
            z=[[score[name][0] if name in score else None for score in scores] for name in names],
            text=[[score[name][1] if name in score else "" for score in scores] for name in names],
            x=seeds,
            y=names,
            zmin=0,
            zmax=1,
            colorscale=SHARES_SCALE,
            texttemplate="%{z:.0%} %{text}",
            hovertemplate="%{y}, %{x}: %{z:.0%}, %{text}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    winners = ", ".join(result.winner.name if result.winner else "none" for result in results)
    alt = f"Score and grade of {len(names)} hypotheses in {len(results)} seeds; what explains them: {winners}."
    return dress(figure, alt, height=ROW_HEIGHT * len(names) + 90, margin={"l": 10, "r": 10, "t": 30, "b": 30})


def swaps_figure(result: SwappedTokens) -> go.Figure:
    """Swaps side by side: the variable before and after, what is right, predicted and answered.

    Blue is as predicted; a swap whose prediction tells nothing is grey.
    """
    tokens = result.tokens
    lanes = [
        Lane("position id", tuple(str(token.position_id) for token in tokens)),
        Lane(result.variable, tuple(f"{token.value:g}" for token in tokens)),
        Lane("swapped in", tuple(f"{token.swapped_in:g}" for token in tokens)),
        Lane("right", tuple(token.right for token in tokens)),
        Lane("before", tuple(token.before for token in tokens), tuple(token.right for token in tokens)),
        Lane("predicted", tuple(token.predicted for token in tokens)),
        Lane(
            "after",
            tuple(token.after for token in tokens),
            tuple(token.predicted if token.tells else None for token in tokens),
        ),
    ]
    alt = f"{len(tokens)} swaps, one a column. {result.verdict.sentence}"
    return strip_figure(lanes, alt, range(len(tokens)))
