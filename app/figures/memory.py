"""Pictures of what a recurrent counter remembers: claims about it with their nulls, and its parts transplanted."""

import plotly.graph_objects as go

from app.figures.share_bars import BLUE, GREY, ORANGE, Marks, share_bars
from app.figures.style import INK
from probes.mechanism.memory_verdict import MemoryMechanisms, TestedMemory
from probes.mechanism.transplants import MemoryParts

TITLE = "comes out as claimed"
NOT_TESTABLE = "not testable"


def memory_claims_figure(result: MemoryMechanisms) -> go.Figure:
    """How often each claim came out, blue where its hypothesis is above every null; every null's mean and highest."""
    claims = [(tested, claim) for tested in result.hypotheses for claim in tested.claims]
    labels = [_claim_label(tested, index) for tested in result.hypotheses for index in range(len(tested.claims))]
    colours = [BLUE if tested.supported else GREY for tested, _ in claims]
    nulls = [(place, null) for place, (_, claim) in enumerate(claims) for null in claim.nulls]
    at, names = [place for place, _ in nulls], [null.name for _, null in nulls]
    marks = [
        Marks("null, mean of draws", [null.mean for _, null in nulls], at, "circle-open", hovers=names),
        Marks("null, highest draw", [null.highest for _, null in nulls], at, hovers=names),
    ]
    alt = f"Share of edits of the memory that come out as claimed; dotted: whole memories. {result.verdict.sentence}"
    figure = share_bars(labels, [claim.score for _, claim in claims], colours, TITLE, alt, marks)
    return figure.add_vline(x=result.whole.value, line_dash="dot", line_color=INK)


def memory_parts_figure(result: MemoryParts) -> go.Figure:
    """How often answers go on from the donor's count, with one part the donor's and with all but that part."""
    labels, shares, colours = ["whole memory (forced)"], [result.whole], [GREY]
    for test in result.parts:
        untested = f" ({NOT_TESTABLE})" if test.forced else ""
        labels += [f"{test.part.label} alone{untested}", f"all but {test.part.label}{untested}"]
        shares += [test.alone, test.without]
        colours += [GREY] * 2 if test.forced else [BLUE, ORANGE]
    alt = f"Share of answers that go on from the donor's count. {result.verdict.sentence}"
    return share_bars(labels, shares, colours, TITLE, alt)


def _claim_label(tested: TestedMemory, index: int) -> str:
    claim = tested.claims[index]
    stays = ", no answer changes" if claim.ignored else ""
    untested = f" ({NOT_TESTABLE})" if claim.forced else ""
    return f"<b>{tested.name}</b>: {claim.variable}{stays}{untested}"
