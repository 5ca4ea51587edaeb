"""The paper as a walk: its claims in order, our numbers beside its own, what they say, and where to see it."""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.escape import for_markdown
from app.explorer.cache import open_counter
from app.explorer.catalogue import Catalogue
from app.explorer.page import DrawnPanel
from app.explorer.progress import with_progress
from app.explorer.seeds import read_all_scores
from app.explorer.walk import STOPS, ClaimProbe, Stop, find_entry
from app.figures.claim_lines import badge, claim_lines, legend, untested
from models.errors import CountLensError
from training.paper.claims import CLAIMS, PaperClaim, judge
from training.paper.comparison import Comparison, compare
from training.paper.differences import FILE, read_differences
from training.paper.finding import Finding, Line

INTRODUCTION = """\
Chang and Bisk (ICLR 2025) trained small language models to count, and asked which of them go on counting in rows longer
than any they were trained on. A *counter* reads a row of tokens, such as `a a a a`, and answers at each how many
there were so far. Transformers differ in how they are told positions: **nope** not at all, **sine** by fixed waves,
**ape** by a learned vector per position, **rope** by turning queries and keys, **spe** by a single number.

Below is each claim of the paper, in its order, with our numbers beside the paper's: the best seed of each, unless it
says otherwise. Every verdict is computed from the scores of all counters here and from probes that look inside them.
Names of counters that are here are links."""


@dataclass(frozen=True)
class _Places:
    """Where on the page a claim's verdict and numbers go."""

    verdict: DeltaGenerator
    numbers: DeltaGenerator


def show(catalogue: Catalogue) -> dict[str, DrawnPanel]:
    """The walk; nothing to attend to, for its pictures are text."""
    comparison = _comparison(catalogue)
    if comparison is None:
        return {}
    st.markdown(INTRODUCTION)
    st.html(legend())
    overview = st.empty()
    findings = {name: judge(claim, comparison) for name, claim in CLAIMS.items()}
    places = {
        name: _draw_claim(number, claim, STOPS[name], catalogue)
        for number, (name, claim) in enumerate(CLAIMS.items(), 1)
    }
    names = [entry.name for entry in catalogue.sound]
    examined = [name for name, stop in STOPS.items() if stop.inside is not None]
    for name, finding in findings.items():
        _draw_finding(places[name], finding, names, pending=name in examined)
    _draw_overview(overview, findings, examined)
    take_away = st.container()
    for number, name in enumerate(examined, 1):  # what has to look inside counters comes last, and one by one
        inside = STOPS[name].inside
        assert inside is not None
        lines = _examine(inside, catalogue, places[name].numbers, f"Step {number} of {len(examined)}")
        findings[name] = Finding((*findings[name].lines, *lines))
        _draw_finding(places[name], findings[name], names)
    _draw_overview(overview, findings)
    with take_away:
        st.download_button("CSV", lambda: _table(findings), "claims.csv", "text/csv", on_click="ignore")
    return {}


def _comparison(catalogue: Catalogue) -> Comparison | None:
    """Our scores beside the paper's; None, with a note, where there is no score table that can be read."""
    try:
        rows = read_all_scores(catalogue)
        reasons = [reason for folder in catalogue.folders for reason in read_differences(folder / FILE)]
    except CountLensError as error:
        st.warning(catalogue.readable(error))
        return None
    if not rows:
        st.info("There is no scores.csv in these folders: `countlens ship` writes one.")
        return None
    return compare(rows, reasons)


def _draw_claim(number: int, claim: PaperClaim, stop: Stop, catalogue: Catalogue) -> _Places:
    """All of a claim but its numbers."""
    st.subheader(f"{number}. {claim.title}", anchor=_anchor(claim))
    verdict = st.empty()
    st.markdown(f"{claim.sentence}  \n:gray[{claim.how} ({claim.section})]")
    numbers = st.empty()
    addresses = [(view.label, view.address(catalogue)) for view in stop.views]
    links = [f'<a href="{address}" target="_self">{label}</a>' for label, address in addresses if address is not None]
    if links:
        st.html(f"<p style='font-size: 0.9rem'>See it: {' · '.join(links)}</p>")
    return _Places(verdict, numbers)


def _draw_finding(places: _Places, finding: Finding, names: list[str], pending: bool = False) -> None:
    """A claim's verdict and numbers; `pending` where probes still have to look."""
    more = "; looking inside the counters …" if pending else ""
    places.verdict.html(f"{badge(finding.verdict)} &ensp;{finding.sentence}{more}")
    with places.numbers.container():
        st.html(claim_lines(finding, names))
        missing = untested(finding)
        if missing:
            with st.expander("Not tested here"):
                st.markdown(for_markdown(missing))


def _draw_overview(place: DeltaGenerator, findings: dict[str, Finding], pending: list[str] | None = None) -> None:
    """The verdicts of all claims, each a link to its place."""
    lines = [
        f"<li><a href='#{_anchor(CLAIMS[name])}'>{CLAIMS[name].title}</a> "
        f"{'…' if pending and name in pending else badge(finding.verdict)}</li>"
        for name, finding in findings.items()
    ]
    place.html(f"<ol style='line-height: 1.8'>{''.join(lines)}</ol>")


def _anchor(claim: PaperClaim) -> str:
    return "".join(char if char.isalnum() else "-" for char in claim.title.lower())


def _examine(inside: ClaimProbe, catalogue: Catalogue, place: DeltaGenerator, step: str) -> list[Line]:
    """What a probe says of the counters that are there."""
    found = {name: find_entry(catalogue, cell) for name, cell in inside.cells.items()}
    entries = {name: entry for name, entry in found.items() if entry is not None}
    results = {}
    with place.container():
        for architecture, entry in with_progress(entries, f"{step}: looking inside the counter with"):
            try:
                results[architecture] = open_counter(entry).call(inside.function).value
            except CountLensError as error:
                st.caption(catalogue.readable(error))
    return list(inside.judge(results))


def _table(findings: dict[str, Finding]) -> str:
    import pandas as pd

    frames = {name: finding.to_frame().assign(verdict=finding.verdict) for name, finding in findings.items()}
    return pd.concat(frames, names=["claim"]).reset_index(level=0).to_csv(index=False, float_format="%.9g")
