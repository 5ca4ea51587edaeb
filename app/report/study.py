"""A study as files: result.json, its tables, its figures in plotly's format, and study.html, which opens offline."""

import json
from pathlib import Path

from plotly.offline import get_plotlyjs

from app.figures.registry import figures_of
from app.report.page import TEMPLATES, pictures_of
from models.atomic import write_text
from probes.studies.result import RESULT, StudyResult

PAGE = "study.html"


def write_study(result: StudyResult, folder: Path) -> list[Path]:
    """Writes the files and returns them; what was there under these names is replaced."""
    files = {
        folder / RESULT: json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n",
        folder / "runs.csv": result.to_frame().to_csv(index=False, float_format="%.9g"),
        folder / "claims.csv": result.claims_frame().to_csv(index=False, float_format="%.9g"),
        folder / PAGE: render_study(result),
    }
    for number, figure in enumerate(figures_of(result).values(), 1):
        files[folder / "figures" / f"{number}.json"] = figure.to_json()
    for path, text in files.items():
        write_text(path, text)
    return list(files)


def render_study(result: StudyResult) -> str:
    """The page as HTML, with plotly's script in it once."""
    return TEMPLATES.get_template("study.html").render(
        result=result,
        protocol=result.protocol,
        pictures=pictures_of(result, result.study),
        plotly=get_plotlyjs(),
    )
