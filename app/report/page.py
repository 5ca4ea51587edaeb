"""report.html: one file that opens offline, rendered from a report."""

from dataclasses import dataclass, replace
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from app.figures.registry import figures_of
from app.report.collect import Report, Skipped, describe_subject
from probes.registry import PROBES
from probes.result import Result, Verdict

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("app.report", "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
CONFIG = {"displaylogo": False, "responsive": True}


@dataclass(frozen=True)
class Picture:
    """A figure as it goes into the page."""

    caption: str
    alt: str
    html: str


@dataclass(frozen=True)
class ProbeEntry:
    """The verdict and the figures of a probe on one counter, or on all together; or why it was skipped."""

    name: str
    verdict: Verdict | None
    skipped: str | None
    together: bool = False  # about all counters: as wide as the page
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Section:
    """A probe and its findings, one per counter."""

    anchor: str
    title: str
    question: str
    paper: str
    findings: tuple[ProbeEntry, ...]


def render(report: Report) -> str:
    """The page as HTML, with plotly's script in it once."""
    sections = [_section(report, name) for name in report.results]
    return TEMPLATES.get_template("report.html").render(
        counters=[_counter(subject) for subject in map(describe_subject, report.subjects)],
        sections=sections,
        seed=report.seed,
        plotly=get_plotlyjs(),
    )


def _section(report: Report, name: str) -> Section:
    findings = [_finding(name, counter, result) for counter, result in report.results[name].items()]
    if name in report.comparisons:
        findings.insert(0, replace(_finding(name, "All together", report.comparisons[name]), together=True))
    probe = PROBES[name]
    return Section(name, probe.title, probe.question, probe.paper, tuple(findings))


def _finding(probe: str, name: str, result: Result | Skipped) -> ProbeEntry:
    if isinstance(result, Skipped):
        return ProbeEntry(name, None, result.reason)
    return ProbeEntry(name, result.verdict, None, pictures=pictures_of(result, probe, name))


def pictures_of(result: Result, *title: str) -> tuple[Picture, ...]:
    """The figures of a result; `title` makes their ids unique in the page."""
    return tuple(
        Picture(
            caption,
            (figure.layout.meta or {}).get("alt", caption),
            figure.update_layout(width=None).to_html(
                full_html=False, include_plotlyjs=False, config=CONFIG, div_id=_identifier(*title, caption)
            ),
        )
        for caption, figure in figures_of(result).items()
    )


def _identifier(*parts: str) -> str:
    """An id for a figure that is the same on every run; plotly's own are random."""
    return "-".join("".join(char if char.isalnum() else "-" for char in part) for part in parts)


def _counter(described: dict[str, Any]) -> dict[str, Any]:
    """A line of the table of counters: our scores beside the paper's."""
    paper = described["paper"] or {}
    model, task = described["model"], described["task"] or {}
    return {
        "name": described["name"],
        "task": f"{task.get('name', '?')}{' + bos' * bool(task.get('bos'))}",
        "architecture": model.get("position", described["family"]),
        "size": f"{model.get('n_layers')} x {model.get('d_model')}",
        "ind": _percent(described["scores"].get("ind")),
        "ood": _percent(described["scores"].get("ood")),
        "last": _pair(described["last_scores"]),
        "paper_best": _pair(paper.get("best")),
        "paper_median": _pair(paper.get("median")),
        "sha": described["sha256"][:12],
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _pair(cell: dict[str, Any] | None) -> str:
    return "" if not cell else f"{_percent(cell.get('ind'))} / {_percent(cell.get('ood'))}"
