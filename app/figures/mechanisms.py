"""Pictures of mechanism tests: how often each claim of each algorithm comes out, and where its variables were found."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from app.figures.style import INK, SHARES_SCALE, SPLIT_COLOURS, dress, error_bars
from probes.mechanism.interchange import HOLDS
from probes.mechanism.verdict import Mechanisms, Tested
from probes.stats import Interval

HELD, FAILED = SPLIT_COLOURS["ind"], SPLIT_COLOURS["aux"]
NULLS = {"placebo": ("x-thin", "random directions"), "untrained": ("circle-open", "untrained counter")}


def claims_figure(result: Mechanisms) -> go.Figure:
    """How often each claim came out, with its interval and its nulls; what explains the counter is blue."""
    winner = result.winner
    bars = [
        (_claim_label(tested, index), claim.accuracy, HELD if tested is winner else FAILED)
        for tested in result.hypotheses
        for index, claim in enumerate(tested.claims)
    ]
    claims = [claim for tested in result.hypotheses for claim in tested.claims]
    nulls = {
        name: [None if (null := getattr(claim, name)) is None else null.value for claim in claims] for name in NULLS
    }
    found = "none of them explains the counter" if winner is None else f"{winner.name} explains the counter"
    alt = f"Share of swaps that come out as predicted, for {len(result.hypotheses)} algorithms: {found}."
    return _shares(bars, nulls, alt)


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


def _claim_label(tested: Tested, index: int) -> str:
    claim = tested.claims[index]
    if not claim.place:
        return f"<b>{tested.name}</b>: as it is"
    return f"{claim.variable} {'ignored' if claim.ignored else ''} at {claim.place}{' ' * index}".replace("  at", " at")


def _shares(
    bars: Sequence[tuple[str, Interval, str]], nulls: Mapping[str, Sequence[float | None]], alt: str
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
    for name, shares in nulls.items():
        symbol, title = NULLS[name]
        marker = {
            "symbol": symbol,
            "size": 9,
            "color": SPLIT_COLOURS["ood"],
            "line": {"width": 2, "color": SPLIT_COLOURS["ood"]},
        }
        figure.add_scatter(x=list(shares), y=places, mode="markers", name=title, marker=marker)
    figure.add_vline(x=HOLDS, line_dash="dot", line_color=FAILED)
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
