"""Writes the findings into the project, from the results of the studies: no number in them is typed by hand.

python docs/findings.py --take runs/studies    # the results of studies that were run there, then all of the below
python docs/findings.py                        # from the results that the project has:

    checkpoints/studies/NAME/      result.json, runs.csv and claims.csv; the explorer's page Studies lists them
    docs/findings/NUMBER.md        a page each, from docs/findings/templates/NAME.md
    docs/findings/NUMBER-*.svg     the figures that the page shows, drawn by Chromium (without one, the old ones stay)
    README.md                      the table between the marks `findings`

A template takes its numbers from the result: `number` and `status` are those of a claim, `mean` that of a column over
some runs, with its interval over seeds. A study without a template or a result has a page with its protocol alone.
"""

import argparse
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import jinja2
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from app.figures.studies import panel_figure
from app.report.study import write_tables
from models.atomic import write_text
from probes.stats import Interval
from probes.studies.analysis import mean_of, over_seeds, rank_correlation, select
from probes.studies.registry import STUDIES
from probes.studies.result import RESULT, SHIPPED_STUDIES, StudyResult, in_words, list_results, read_result
from probes.studies.study import JudgedClaim, Panel, Study

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/findings"
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
DEFAULT = "page.md"  # the template that the others extend
FIRST, LAST = "<!-- findings: written by docs/findings.py -->", "<!-- end of findings -->"
SIZE = {"width": 860, "height": 400}


@dataclass
class Page:
    """What the template of a finding can use; afterwards, the panels that it shows."""

    name: str
    study: Study
    result: StudyResult | None
    figures: list[Panel] = field(default_factory=list)

    def text(self) -> str:
        """The page."""
        self.figures.clear()
        text = self._template.render(self._names)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"

    def block(self, name: str) -> str:
        """One block of the page, on one line."""
        template = self._template
        context = template.new_context(self._names)
        return " ".join("".join(template.blocks[name](context)).split()) if name in template.blocks else ""

    @property
    def _template(self) -> jinja2.Template:
        own = f"{self.name}.md"
        return TEMPLATES.get_template(own if self.result is not None and own in TEMPLATES.list_templates() else DEFAULT)

    @property
    def _names(self) -> dict[str, object]:
        unjudged = (JudgedClaim(claim, None) for claim in self.study.protocol.claims)
        return {
            "name": self.name,
            "study": self.study,
            "protocol": self.study.protocol,
            "result": self.result,
            "figure": self.figure,
            "number": self.number,
            "status": self.status,
            "mean": self.mean,
            "count": self.count,
            "correlation": self.correlation,
            "claims": unjudged if self.result is None else self.result.claims,
            "came_out": came_out,
        }

    def figure(self, caption: str, words: str) -> str:
        """The picture with this caption, and below it what it shows."""
        assert self.result is not None
        panel = next(panel for panel in self.result.panels if panel.caption == caption)
        self.figures.append(panel)
        return f"![{caption}]({self.study.number}-{len(self.figures)}.svg)\n\n*{caption}. {words}*"

    def number(self, claim: str) -> str:
        """The number of a claim, with its interval."""
        return came_out(self._judged(claim))

    def status(self, claim: str) -> str:
        """Whether a claim is supported, refuted or undecided."""
        return self._judged(claim).status

    def _judged(self, claim: str) -> JudgedClaim:
        assert self.result is not None
        return next(judged for judged in self.result.claims if judged.claim.name == claim)

    def mean(self, column: str, form: Literal["", "%", "share"] = "", **values: object) -> str:
        """The mean of a column over the runs with these values, with its interval; percents and shares as percents."""
        interval = over_seeds(self._runs(values), mean_of(column))
        assert interval is not None, f"{self.name}: too few runs with {column} and {values}"
        scale = 100 if form == "share" else 1
        return in_words(Interval(*(scale * bound for bound in vars(interval).values())), "%" if form else "")

    def correlation(self, column: str, other: str, within: str, **values: object) -> str:
        """The rank correlation of two columns over the runs with these values, with its interval."""
        interval = over_seeds(self._runs(values), rank_correlation(column, other, within=within))
        assert interval is not None, f"{self.name}: too few runs with {values}"
        return in_words(interval, "")

    def count(self, column: str, above: float, **values: object) -> str:
        """How many of the runs with these values have more than that in a column, as 9 of 10."""
        runs = self._runs(values)
        return f"{int((runs[column] > above).sum())} of {len(runs)}"

    def _runs(self, values: dict[str, object]) -> pd.DataFrame:
        assert self.result is not None
        table = self.result.to_frame()
        return select(table, **values) if values else table


def came_out(judged: JudgedClaim) -> str:
    """The number of a claim, with its unit and its interval."""
    return "" if judged.estimate is None else in_words(judged.estimate, judged.claim.unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, help="a folder with results of studies")
    arguments = parser.parse_args()
    if arguments.take is not None:
        take_results(arguments.take)
    pages = list_pages()
    for page in pages:
        write_text(PAGES / f"{page.study.number}.md", page.text())
    draw_figures(pages)
    readme = ROOT / "README.md"
    write_text(readme, with_table(readme.read_text(), pages))


def take_results(folder: Path) -> None:
    """Copies the results of full studies that were made under the protocol as it stands."""
    for found in list_results(folder):
        result = found.result
        if result is None or result.quick or result.study not in STUDIES:
            print(f"left out: {found.path} ({found.error or 'a quick study, or an unknown one'})", file=sys.stderr)
        elif result.protocol_digest != STUDIES[result.study].protocol.digest:
            print(f"left out: {found.path} was made under another protocol", file=sys.stderr)
        else:
            write_tables(result, SHIPPED_STUDIES / result.study)


def list_pages() -> list[Page]:
    """The pages of all studies, by their number."""
    pages = []
    for name, study in STUDIES.items():
        path = SHIPPED_STUDIES / name / RESULT
        pages.append(Page(name, study, read_result(path) if path.is_file() else None))
    return sorted(pages, key=lambda page: page.study.number)


def with_table(readme: str, pages: list[Page]) -> str:
    """The README with one line per finding between its marks."""
    before, _, rest = readme.partition(FIRST)
    _, _, after = rest.partition(LAST)
    lines = ["| question | answer (95 % intervals over seeds) |", "|---|---|"]
    for page in pages:
        question = f"[{page.study.protocol.question}](docs/findings/{page.study.number}.md)"
        lines.append(f"| {question} | {page.block('answer')} |")
    return "\n".join([f"{before}{FIRST}", "", *lines, "", f"{LAST}{after}"])


def draw_figures(pages: list[Page]) -> None:
    """The figures that the pages show, as SVG files."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        print("figures are as before: pip install playwright to draw them", file=sys.stderr)
        return
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        except Error as error:
            print(f"figures are as before: {error}", file=sys.stderr)
            return
        tab = browser.new_page()
        tab.set_content("<div id=figure></div>")
        tab.add_script_tag(content=get_plotlyjs())
        for page in pages:
            for index, panel in enumerate(page.figures, 1):
                write_text(PAGES / f"{page.study.number}-{index}.svg", to_svg(tab, panel_figure(panel)))
        browser.close()


def to_svg(tab: object, figure: go.Figure) -> str:
    """A figure as a browser draws it; its ids, which plotly draws at random, are always the same."""
    script = (
        "async ([figure, size]) => Plotly.toImage(JSON.parse(figure), {format: 'svg', imageDataOnly: true, ...size})"
    )
    text = str(tab.evaluate(script, [figure.to_json(), SIZE]))  # type: ignore[attr-defined]
    random = re.search(r"defs-([0-9a-f]{6})", text)
    return text if random is None else text.replace(random[1], "figure")


if __name__ == "__main__":
    main()
