"""The numbers of a claim as a small picture: ours and the paper's on a line each, on the range that the claim gives.

Plain HTML, as the zoo's table: a dozen of them are on one page.
"""

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from app.escape import printable
from app.figures.cells import ON_CELL, RIGHT_COLOUR, UNSCORED_COLOUR, WRONG_COLOUR
from training.paper.finding import ClaimVerdict, Finding, Line
from training.paper.tables import printed

OURS, PAPER = "#0072B2", "#D55E00"
LOOKS: dict[ClaimVerdict, tuple[str, str]] = {  # colour and sign: not everyone sees the colour
    "holds": (RIGHT_COLOUR, "✓"),
    "holds in part": ("#F3EFD2", "≈"),
    "does not hold here": (WRONG_COLOUR, "≠"),
    "not tested": (UNSCORED_COLOUR, "?"),
}
SIGNS: dict[bool | None, str] = {True: "✓", False: "≠", None: "?"}
STYLE = f"""<style>
.claim {{ font-size: 0.8rem; line-height: 1.3 }}
.claim > div {{ display: grid; grid-template-columns: minmax(8rem, 16rem) minmax(6rem, 22rem) minmax(8rem, 1fr);
  gap: 0 0.8rem; align-items: center; min-height: 1.5rem }}
.claim .track {{ position: relative; height: 1.1rem; border-left: 1px solid; border-right: 1px solid;
  border-color: rgba(128, 128, 128, 0.5) }}
.claim .track i {{ position: absolute; display: block; box-sizing: border-box }}
.claim .band {{ top: 0; bottom: 0; background: rgba(0, 158, 115, 0.25) }}
.claim .span {{ top: 0.45rem; height: 0.2rem; background: {OURS} }}
.claim .ours {{ top: 0.2rem; width: 0.7rem; height: 0.7rem; margin-left: -0.35rem; border-radius: 50%;
  background: {OURS} }}
.claim .paper {{ top: 0.1rem; width: 0.9rem; height: 0.9rem; margin-left: -0.45rem; border-radius: 50%;
  border: 2px solid {PAPER} }}
.claim .mark {{ display: inline-block; width: 1.2rem; vertical-align: middle; border: none }}
.claim a {{ color: inherit }}
.claim small {{ opacity: 0.75 }}
.badge {{ color: {ON_CELL}; padding: 0.1rem 0.6rem; border-radius: 3px; font-size: 0.9rem; white-space: nowrap }}
@media (max-width: 640px) {{ .claim > div {{ grid-template-columns: 1fr 6rem; margin-bottom: 0.4rem }}
  .claim .says {{ grid-column: 1 / 3; grid-row: 2 }} }}
</style>"""


def badge(verdict: ClaimVerdict) -> str:
    """The verdict as a coloured word with a sign."""
    colour, sign = LOOKS[verdict]
    return f"<span class='badge' style='background: {colour}'>{sign} {verdict}</span>"


def legend() -> str:
    """What the marks on a line are."""
    marks = (("ours", "our number"), ("paper", "the paper's"))
    dots = "".join(
        f"<span class='track mark'><i class='{mark}' style='left: 50%'></i></span> {text} &emsp; "
        for mark, text in marks
    )
    band = "<span style='background: rgba(0, 158, 115, 0.25); padding: 0 0.8rem'>&nbsp;</span> where the claim wants it"
    verdicts = " ".join(badge(verdict) for verdict in LOOKS)
    return f"{STYLE}<div class='claim'><p>0 to 100 %: {dots}{band}</p><p>{verdicts}</p></div>"


def claim_lines(finding: Finding, linked: Sequence[str] = ()) -> str:
    """A line for each number that was tested; names of counters in `linked` become links."""
    lines = "".join(_line(line, line.run in linked) for line in finding.tested)
    return f"{STYLE}<div class='claim' role='group' aria-label='{escape(describe(finding))}'>{lines}</div>"


def untested(finding: Finding) -> str:
    """The numbers that we lack, with the paper's."""
    missing = [line for line in finding.lines if line.holds is None]
    return "; ".join(
        f"{line.name}" + ("" if line.paper is None else f" (the paper: {printed(line.paper)})") for line in missing
    )


def describe(finding: Finding) -> str:
    """The picture in words."""
    said = "; ".join(f"{line.name}: {_numbers(line)}, expected {line.expects}" for line in finding.tested)
    return f"{finding.verdict}. {said}."


def _numbers(line: Line) -> str:
    ours = "none" if line.ours is None else printed(line.ours)
    return f"ours {ours}" + ("" if line.paper is None else f", the paper {printed(line.paper)}")


def _line(line: Line, linked: bool) -> str:
    assert line.ours is not None
    marks = f"<i class='band' style='left: {line.low:.1f}%; right: {100 - min(line.high, 100):.1f}%'></i>"
    if line.interval is not None:
        low, high = (min(max(end, 0.0), 100.0) for end in line.interval)
        marks += f"<i class='span' style='left: {low:.1f}%; right: {100 - high:.1f}%'></i>"
    if line.paper is not None:
        marks += f"<i class='paper' style='left: {line.paper:.1f}%'></i>"
    marks += f"<i class='ours' style='left: {min(max(line.ours, 0.0), 100.0):.1f}%'></i>"
    name = escape(printable(line.name))
    if linked and line.run is not None:
        name = f"<a href='behaviour?counter={quote(line.run, safe='')}' target='_self'>{name}</a>"
    paper = "" if line.paper is None else f" · paper {printed(line.paper)}"
    expects = f"<small>claim: {escape(printable(line.expects))}</small>"
    says = f"{SIGNS[line.holds]} <b>{printed(line.ours)}</b>{paper} {expects}"
    if line.reason is not None and line.holds is False:
        says += f"<br><small>{escape(printable(line.reason))}</small>"
    return f"<div><span>{name}</span><span class='track'>{marks}</span><span class='says'>{says}</span></div>"
