"""How far a counter gets before its first mistake."""

from dataclasses import dataclass

from app.explorer import state
from app.explorer.cache import SharedCounter
from app.explorer.call import Call
from app.explorer.page import Panel, Panels
from app.figures.reach import reach_figure
from probes.reading.reach import reach

TITLE = "Right answers before the first mistake"


@dataclass(frozen=True)
class Settings:
    rows: int


def controls(subject: SharedCounter) -> Settings:
    """How many rows are drawn."""
    return Settings(state.slider("rows", "Rows", 16, 1024, 256))


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The histogram."""
    found = subject.call(reach, rows=settings.rows)
    yield Panel(TITLE, Call(reach_figure, found), found.value.to_frame, found.value.verdict.sentence)
