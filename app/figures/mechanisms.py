"""Pictures of mechanism tests: how often each claim of each algorithm comes out, and where its variables were found."""

import plotly.graph_objects as go

from app.figures.share_bars import BLUE, GREY, Marks, share_bars
from app.figures.style import SHARES_SCALE, dress
from probes.mechanism.examination import Claim
from probes.mechanism.swap_pairs import BEYOND
from probes.mechanism.verdict import Mechanisms, Tested


def claims_figure(result: Mechanisms) -> go.Figure:
    """How often each claim came out, with its interval, its best null and the share beyond training.

    What explains the counter is blue. Swaps that several hypotheses share are drawn once.
    """
    winners = [tested for tested in (result.winner, result.refinement) if tested is not None]
    claims = [
        (tested, claim)
        for tested in result.hypotheses
        for claim in tested.claims
        if not tested.swaps_of or claim not in _claims_of(result, tested.swaps_of)
    ]
    nulls = [max((null.value for null in claim.nulls.values()), default=None) for _, claim in claims]
    beyond = [claim.outside[BEYOND].value if claim.outside and BEYOND in claim.outside else None for _, claim in claims]
    places = range(len(claims))
    names = " and ".join(f"{tested.name} ({tested.grade})" for tested in winners)
    verb = "explains" if len(winners) == 1 else "explain"
    sentence = f"{names} {verb} the counter" if winners else "none of them explains the counter"
    return share_bars(
        [_claim_label(tested, claim) for tested, claim in claims],
        [claim.accuracy for _, claim in claims],
        [BLUE if tested in winners else GREY for tested, _ in claims],
        "comes out as predicted",
        f"Share of interventions that come out as predicted, for {len(result.hypotheses)} algorithms: {sentence}.",
        [Marks("best null", nulls, places), Marks("beyond training", beyond, places, "circle-open")],
    )


def _claims_of(result: Mechanisms, name: str) -> tuple[Claim, ...]:
    return next(tested.claims for tested in result.hypotheses if tested.name == name)


def places_figure(result: Mechanisms) -> go.Figure:
    """How often a variable's swap came out at each place that was tried."""
    frame = result.places_frame()
    frame["claim"] = frame["hypothesis"] + ": " + frame["variable"]
    # Along a variable's directions there is one place for each variable; they share a line.
    frame["place"] = frame["place"].str.replace(r" along .*", " along it", regex=True)
    table = frame.pivot_table(index="place", columns="claim", values="accuracy", sort=False)
    heat = go.Heatmap(
        z=table.to_numpy(),
        x=list(table.columns),
        y=list(table.index),
        zmin=0,
        zmax=1,
        colorscale=SHARES_SCALE,
        colorbar={"title": "comes out", "tickformat": ".0%"},
        hovertemplate="%{x}<br>%{y}<br>%{z:.0%}<extra></extra>",
        xgap=1,
        ygap=1,
    )
    figure = go.Figure(heat)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(automargin=True)
    best = frame.loc[frame["accuracy"].idxmax()]
    alt = f"Share of swaps that come out, by variable and place; most at {best['place']} for {best['claim']}."
    return dress(figure, alt, height=max(320, 18 * len(table) + 160), margin={"l": 10, "r": 10, "t": 30, "b": 10})


def _claim_label(tested: Tested, claim: Claim) -> str:
    if not claim.place:
        return f"<b>{tested.name}</b> ({tested.grade}): as it is"
    if tested.swaps_of:
        return f"<b>{tested.name}</b> ({tested.grade}): {claim.place}, {claim.variable}"
    return f"{claim.variable}{' ignored' if claim.ignored else ''} at {claim.place}"
