"""Pictures of the mechanism page: claims by implied distance, hypotheses by seed or step, and single swaps."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from app.figures.strip import Lane, strip_figure
from app.figures.style import SHARES_SCALE, dress
from probes.mechanism.grades import GRADES
from probes.mechanism.swapped_tokens import SwappedTokens
from probes.mechanism.verdict import Mechanisms, Tested

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


def hypotheses_figure(*results: Mechanisms, names: Sequence[str]) -> go.Figure:
    """What each hypothesis surely explains of several counters, such as seeds or steps of a training, by their names.

    A cell says how often the worst claim comes out and its grade; one of grade none is empty.
    """
    hypotheses = list(dict.fromkeys(tested.name for result in results for tested in result.hypotheses))
    by_counter = [{tested.name: tested for tested in result.hypotheses} for result in results]
    rows = [[tested.get(name) for tested in by_counter] for name in hypotheses]
    figure = go.Figure(
        go.Heatmap(
            z=[[_explained(tested) for tested in row] for row in rows],
            text=[[_share_and_grade(tested) for tested in row] for row in rows],
            x=list(names),
            y=hypotheses,
            zmin=0,
            zmax=1,
            colorscale=SHARES_SCALE,
            texttemplate="%{text}",
            customdata=[[[name] for name in names]] * len(hypotheses),
            hovertemplate="%{y}, %{x}: surely explains %{z:.0%}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    winners = "; ".join(
        f"{name} {result.winner.name if result.winner else 'none'}" for name, result in zip(names, results, strict=True)
    )
    alt = f"What each of {len(hypotheses)} hypotheses surely explains of {len(names)} counters. The best: {winners}."
    return dress(figure, alt, height=38 * len(hypotheses) + 90, margin={"l": 10, "r": 10, "t": 30, "b": 30})


def _explained(tested: Tested | None) -> float | None:
    """The surplus of the worst claim; 0 for grade none, None where the hypothesis was not tested."""
    if tested is None:
        return None
    return 0.0 if tested.grade == GRADES[0] else tested.worst.surplus


def _share_and_grade(tested: Tested | None) -> str:
    if tested is None or tested.grade == GRADES[0]:
        return ""
    return f"{tested.score.value:.0%}<br>{tested.grade}"


def swaps_figure(result: SwappedTokens) -> go.Figure:
    """Swaps side by side: the variable before and after, what is right, predicted and answered.

    Blue is as predicted. Grey is a swap whose prediction is one of the two rows' own answers, so that it tells nothing.
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
    alt = f"{len(tokens)} swaps, one per column. {result.verdict.sentence}"
    return strip_figure(lanes, alt, range(len(tokens)))
