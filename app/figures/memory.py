"""Pictures of what a recurrent counter remembers: claims about it with their nulls, and its parts transplanted."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.figures.style import INK, SPLIT_COLOURS, dress, error_bars
from probes.mechanism.memory_verdict import MemoryMechanisms, TestedMemory
from probes.mechanism.transplants import MemoryParts
from probes.stats import Interval

SUPPORTED, NOT_SUPPORTED, NULL = SPLIT_COLOURS["ind"], SPLIT_COLOURS["aux"], SPLIT_COLOURS["ood"]
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
NOT_TESTABLE = "not testable"


def memory_claims_figure(result: MemoryMechanisms) -> go.Figure:
    """How often each claim came out, blue where its hypothesis is above every null; every null's mean and highest."""
    claims = [(tested, claim) for tested in result.hypotheses for claim in tested.claims]
    labels = [_claim_label(tested, index) for tested in result.hypotheses for index in range(len(tested.claims))]
    colours = [SUPPORTED if tested.supported else NOT_SUPPORTED for tested, _ in claims]
    figure = _bars(labels, [claim.score for _, claim in claims], colours)
    nulls = [(place, null) for place, (_, claim) in enumerate(claims) for null in claim.nulls]
    for name, symbol, value in (
        ("null, mean of draws", "circle-open", "mean"),
        ("null, highest draw", "x-thin", "highest"),
    ):
        figure.add_scatter(
            x=[getattr(null, value) for _, null in nulls],
            y=[place for place, _ in nulls],
            customdata=[null.name for _, null in nulls],
            mode="markers",
            name=name,
            marker={"symbol": symbol, "size": 8, "color": NULL, "line": {"width": 2, "color": NULL}},
            hovertemplate="%{customdata}: %{x:.0%}<extra></extra>",
        )
    figure.add_vline(x=result.whole.value, line_dash="dot", line_color=INK)
    alt = f"Share of edits of the memory that come out as claimed; dotted: whole memories. {result.verdict.sentence}"
    return _dress(figure, alt, labels)


def memory_parts_figure(result: MemoryParts) -> go.Figure:
    """How often answers go on from the donor's count, with one part the donor's and with all but that part."""
    labels, shares, colours = ["whole memory (forced)"], [result.whole], [NOT_SUPPORTED]
    for one in result.parts:
        untested = f" ({NOT_TESTABLE})" if one.forced else ""
        labels += [f"{one.part.label} alone{untested}", f"all but {one.part.label}{untested}"]
        shares += [one.alone, one.without]
        colours += [NOT_SUPPORTED] * 2 if one.forced else [SUPPORTED, NULL]
    alt = f"Share of answers that go on from the donor's count. {result.verdict.sentence}"
    return _dress(_bars(labels, shares, colours), alt, labels)


def _claim_label(tested: TestedMemory, index: int) -> str:
    claim = tested.claims[index]
    stays = ", no answer changes" if claim.ignored else ""
    untested = f" ({NOT_TESTABLE})" if claim.forced else ""
    return f"<b>{tested.name}</b>: {claim.variable}{stays}{untested}"


def _bars(labels: Sequence[str], shares: Sequence[Interval], colours: Sequence[str]) -> go.Figure:
    """One bar per label; labels may be equal."""
    bars = go.Bar(
        x=[share.value for share in shares],
        y=list(range(len(labels))),
        orientation="h",
        marker_color=list(colours),
        error_x=error_bars(shares, color=INK),
        customdata=list(labels),
        hovertemplate="%{customdata}<br>%{x:.0%}<extra></extra>",
        showlegend=False,
    )
    return go.Figure(bars)


def _dress(figure: go.Figure, alt: str, labels: Sequence[str]) -> go.Figure:
    places = list(range(len(labels)))
    figure.update_yaxes(tickmode="array", tickvals=places, ticktext=list(labels), autorange="reversed", automargin=True)
    figure.update_xaxes(range=[0, 1.04], tickformat=".0%", title="comes out as claimed")
    return dress(figure, alt, height=26 * len(labels) + 130, legend=LEGEND, margin={"l": 10, "r": 10})
