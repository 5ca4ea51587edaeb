"""Writes docs/findings/N.md from the protocols and the results of the studies: no number there is typed by hand.

python docs/findings.py                        # the pages anew, from the results in docs/findings
python docs/findings.py --take runs/studies    # first take over the results of studies that were run there

Figures are drawn by Chromium (`playwright install chromium`); without one the old ones stay.
"""

import argparse
import json
import sys
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from app.figures.registry import figures_of
from models.atomic import write_text
from probes.studies.registry import STUDIES
from probes.studies.result import StudyResult, describe, list_results, read_result
from probes.studies.study import Protocol

HERE = Path(__file__).resolve().parent / "findings"
N_FIGURES = 2  # of a page
SIZE = {"width": 860, "height": 400}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, help="a folder with results of studies")
    arguments = parser.parse_args()
    if arguments.take is not None:
        take_results(arguments.take)
    for name, study in STUDIES.items():
        path = HERE / f"{name}.json"
        result = read_result(path) if path.is_file() else None
        if result is not None and arguments.take is not None:
            draw_figures(result, study.number)
        write_text(HERE / f"{study.number}.md", page(name, study.title, study.protocol, study.number, result))


def take_results(folder: Path) -> None:
    """Copies the results of full studies that were made under the protocol as it stands."""
    for found in list_results(folder):
        result = found.result
        if result is None or result.quick or result.study not in STUDIES:
            print(f"left out: {found.path} ({found.error or 'a quick study, or an unknown one'})", file=sys.stderr)
        elif result.protocol_digest != STUDIES[result.study].protocol.digest:
            print(f"left out: {found.path} was made under another protocol", file=sys.stderr)
        else:
            text = json.dumps(result.to_dict(), allow_nan=False, separators=(",", ":")) + "\n"
            write_text(HERE / f"{result.study}.json", text)


def page(name: str, title: str, protocol: Protocol, number: int, result: StudyResult | None) -> str:
    """A finding on two pages or less."""
    parts = [f"# {number}. {title}", f"**{protocol.question}**"]
    parts.append("*Not run yet: what follows is the protocol alone.*" if result is None else verdict(result))
    parts += [f"{protocol.hypothesis}", claims(protocol, result)]
    if result is not None:
        for index, panel in enumerate(result.panels[:N_FIGURES], 1):
            parts.append(f"![{panel.caption}]({number}-{index}.svg)\n\n*{panel.caption}. Bars: 95 % over seeds.*")
    parts += [
        f"**Background.** {protocol.background}",
        f"**Runs.** {protocol.grid}",
        f"**Analysis.** {protocol.analysis}",
        f"**Left out.** {protocol.left_out}",
        f"Protocol {protocol.digest}, in `probes/studies/{name}.py`, committed before the first run. To run it again: "
        f"`countlens study {name}` (`--quick`: minutes; `--dry-run`: what it costs). This page is written by "
        "`python docs/findings.py`.",
    ]
    return "\n\n".join(parts) + "\n"


def verdict(result: StudyResult) -> str:
    """The verdict in a line, and what is missing."""
    note = f" {len(result.missing)} runs are missing." if result.missing else ""
    return f"**{result.status.capitalize()}** ({result.size}).{note}"


def claims(protocol: Protocol, result: StudyResult | None) -> str:
    """The table of claims: as they were stated, and as they came out."""
    judged = {} if result is None else {one.claim.name: one for one in result.claims}
    lines = ["| claim, stated before the runs | refuted if | came out (95 % over seeds) |", "|---|---|---|"]
    for claim in protocol.claims:
        found = describe(judged[claim.name]).removeprefix(f"{claim.name}: ") if claim.name in judged else ""
        kind = "" if claim.is_primary else " (not primary)"
        lines.append(f"| *{claim.name}*{kind}: {claim.statement} | {claim.refuted_by} | {found} |")
    return "\n".join(lines)


def draw_figures(result: StudyResult, number: int) -> None:
    """The first figures as SVG files."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no figures: pip install playwright", file=sys.stderr)
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch()
        tab = browser.new_page()
        tab.set_content("<div id=figure></div>")
        tab.add_script_tag(content=get_plotlyjs())
        for index, figure in enumerate(list(figures_of(result).values())[:N_FIGURES], 1):
            write_text(HERE / f"{number}-{index}.svg", to_svg(tab, figure))
        browser.close()


def to_svg(tab: object, figure: go.Figure) -> str:
    """A figure as a browser draws it."""
    script = (
        "async ([figure, size]) => Plotly.toImage(JSON.parse(figure), {format: 'svg', imageDataOnly: true, ...size})"
    )
    return str(tab.evaluate(script, [figure.to_json(), SIZE]))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
