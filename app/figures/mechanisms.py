"""Pictures of mechanism tests: how often each claim of each algorithm comes out, and where its variables were found."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from app.figures.style import INK, SHARES_SCALE, SPLIT_COLOURS, dress, error_bars
from models.families import OTHER_COLOUR
from probes.mechanism.examination import Claim
from probes.mechanism.interchange import HOLDS
from probes.mechanism.swap_pairs import BEYOND
from probes.mechanism.transplants import StateIsCount
from probes.mechanism.verdict import Mechanisms, Tested
from probes.stats import Interval

HELD, FAILED = SPLIT_COLOURS["ind"], SPLIT_COLOURS["aux"]
MARKS = {"best null": "x-thin", "beyond training": "circle-open"}  # beside a bar


def claims_figure(result: Mechanisms) -> go.Figure:
    """How often each claim came out, with its interval, its best null and the share beyond training.

    What explains the counter is blue. Swaps that several hypotheses share are drawn once.
    """
    found = [one for one in (result.winner, result.refinement) if one is not None]
    claims = [
        (tested, claim)
        for tested in result.hypotheses
        for claim in tested.claims
        if not tested.swaps_of or claim not in _claims_of(result, tested.swaps_of)
    ]
    bars = [
        (_claim_label(tested, claim), claim.accuracy, HELD if tested in found else FAILED) for tested, claim in claims
    ]
    marks = {
        "best null": [max((null.value for null in claim.nulls.values()), default=None) for _, claim in claims],
        "beyond training": [
            claim.outside[BEYOND].value if claim.outside and BEYOND in claim.outside else None for _, claim in claims
        ],
    }
    said = " and ".join(f"{one.name} ({one.grade})" for one in found)
    said = f"{said} explain{'s' * (len(found) == 1)} the counter" if found else "none of them explains the counter"
    alt = f"Share of interventions that come out as predicted, for {len(result.hypotheses)} algorithms: {said}."
    return _shares(bars, marks, alt)


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


def transplant_figure(result: StateIsCount) -> go.Figure:
    """How often answers after a transplant go on from the transplanted count, by what of the state was replaced."""
    number, size = result.n_directions
    bars = [
        ("whole state", result.whole, HELD),
        (f"{number} directions of {size}", result.directions, HELD),
        (f"{number} random directions", result.placebo, FAILED),
        ("whole state, untrained", result.untrained, FAILED),
        (f"all but the {number}: own count stays", result.rest, OTHER_COLOUR),
    ]
    alt = f"After a transplant of the whole state {result.whole.value:.0%} of answers go on from its count."
    return _shares(bars, {}, alt, HOLDS)


def _claim_label(tested: Tested, claim: Claim) -> str:
    if not claim.place:
        return f"<b>{tested.name}</b> ({tested.grade}): as it is"
    if tested.swaps_of:
        return f"<b>{tested.name}</b> ({tested.grade}): {claim.place}, {claim.variable}"
    return f"{claim.variable}{' ignored' if claim.ignored else ''} at {claim.place}"


def _shares(
    bars: Sequence[tuple[str, Interval, str]],
    marks: Mapping[str, Sequence[float | None]],
    alt: str,
    line: float | None = None,
) -> go.Figure:
    """Bars of shares with intervals, the first on top."""
    places = list(range(len(bars)))
    values = [interval.value for _, interval, _ in bars]
    figure = go.Figure(
        go.Bar(
            x=values,
            y=places,
            orientation="h",
            marker_color=[colour for _, _, colour in bars],
            error_x=error_bars([interval for _, interval, _ in bars], color=INK),
            customdata=[label for label, _, _ in bars],
            hovertemplate="%{customdata}<br>%{x:.0%}<extra></extra>",
            showlegend=False,
        )
    )
    for title, shares in marks.items():
        marker = {
            "symbol": MARKS[title],
            "size": 9,
            "color": SPLIT_COLOURS["ood"],
            "line": {"width": 2, "color": SPLIT_COLOURS["ood"]},
        }
        figure.add_scatter(x=list(shares), y=places, mode="markers", name=title, marker=marker)
    if line is not None:
        figure.add_vline(x=line, line_dash="dot", line_color=FAILED)
    figure.update_yaxes(
        tickmode="array",
        tickvals=places,
        ticktext=[label for label, _, _ in bars],
        autorange="reversed",
        automargin=True,
    )
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title="comes out as predicted")
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    height = 26 * len(bars) + 130
    return dress(figure, alt, height=height, legend=legend, margin={"l": 10, "r": 10})
