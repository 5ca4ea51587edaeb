"""A study as files: result.json, its tables, its figures in plotly's format, and study.html, which opens offline."""

import json
from pathlib import Path

from plotly.offline import get_plotlyjs

from app.figures.registry import figures_of
from app.report.page import TEMPLATES, pictures_of
from models.atomic import write_text
from probes.studies.result import RESULT, StudyResult

PAGE = "study.html"


def write_study(result: StudyResult, folder: Path) -> None:
    """Writes all of these files; what was there under their names is replaced."""
    write_tables(result, folder)
    for number, figure in enumerate(figures_of(result).values(), 1):
        write_text(folder / "figures" / f"{number}.json", figure.to_json())
    write_text(folder / PAGE, render_study(result))


def write_tables(result: StudyResult, folder: Path) -> None:
    """Writes the result, and the table of runs and that of claims as CSV."""
    write_text(folder / RESULT, json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
    write_text(folder / "runs.csv", result.to_frame().to_csv(index=False, float_format="%.9g"))
    write_text(folder / "claims.csv", result.claims_frame().to_csv(index=False, float_format="%.9g"))


def render_study(result: StudyResult) -> str:
    """The page as HTML, with plotly's script in it once."""
    return TEMPLATES.get_template("study.html").render(
        result=result,
        protocol=result.protocol,
        pictures=pictures_of(result, result.study),
        plotly=get_plotlyjs(),
    )
