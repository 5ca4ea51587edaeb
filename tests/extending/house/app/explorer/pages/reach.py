"""How far a counter gets before its first mistake."""

from dataclasses import dataclass

from app.explorer import state
from app.explorer.cache import Subject, compute
from app.explorer.page import Panel, Panels
from app.figures.reach import reach_figure
from probes.reading.reach import reach

TITLE = "Right answers before the first mistake"
CODE = """from app.figures.reach import reach_figure
from probes.reading.reach import reach

figure = reach_figure(reach(counter, rows={rows}))"""


@dataclass(frozen=True)
class Settings:
    rows: int


def controls(subject: Subject) -> Settings:
    """How many rows are drawn."""
    return Settings(state.slider("rows", "Rows", 16, 1024, 256))


def panels(subject: Subject, settings: Settings) -> Panels:
    """The histogram."""
    result = compute(subject, reach, rows=settings.rows)
    code = CODE.format(rows=settings.rows)
    yield Panel(TITLE, reach_figure(result), result.to_frame, code, result.verdict.sentence)
