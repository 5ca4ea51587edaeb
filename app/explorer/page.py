"""What a page is: data in the registry, and a module of `app/explorer/pages/` that chooses, calls and shows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from app.explorer.call import Call

if TYPE_CHECKING:  # both are slow to import, and the first page needs neither
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Panel:
    """A picture, and the numbers in it."""

    caption: str
    figure: Call["go.Figure"]  # of a function in app/figures/, which gives it an alt text
    frame: Callable[[], "pd.DataFrame"]  # called when a visitor downloads the CSV
    sentence: str = ""  # under the caption, such as the result's verdict
    half: bool = False  # whether it stands beside another half, where there is one counter and room
    least_width: int = 0  # pixels below which the picture scrolls: on a phone, long labels would leave it no room
    # Widgets that a click on a point sets, with the values that they may take; the point's customdata has one for each.
    chooses: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def alt(self) -> str:
        """What a screen reader says of the figure, which this draws."""
        return str(self.figure.value.layout.meta["alt"])


@dataclass(frozen=True)
class DrawnPanel:
    """A panel that is on the page: what a screen reader says of it, and what a click on it sets."""

    alt: str
    chooses: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def panel_of(
    caption: str, draw: Callable[..., "go.Figure"], probe: Call[Any], *arguments: Any, least_width: int = 0
) -> Panel:
    """A figure of a probe's result, with the result's own table and verdict."""
    result = probe.value
    figure = Call(draw, probe, *arguments)
    return Panel(caption, figure, result.to_frame, result.verdict.sentence, least_width=least_width)


def spread_panel(
    caption: str, draw: Callable[..., "go.Figure"], results: Mapping[str, Call[Any]], of: str, **named: Any
) -> Panel:
    """A figure of the results of several counters by name, with a table in which each line names its counter.

    `of` says what the names are, such as `seed`.
    """

    def frame() -> "pd.DataFrame":
        import pandas as pd

        tables = {name: result.value.to_frame() for name, result in results.items()}
        return pd.concat(tables, names=[of]).reset_index(level=0)

    figure = Call(draw, *results.values(), names=tuple(results), **named)
    return Panel(caption, figure, frame, f"{len(results)} {of}s that are here.")


@dataclass(frozen=True)
class Note:
    """A sentence in place of a panel."""

    text: str


Panels = Iterator[Panel | Note]
WIDE = 640  # the least width of a picture with long labels or many columns


@dataclass(frozen=True)
class Page:
    """One entry of the navigation.

    `module` has `controls(subject) -> Settings`, which draws the page's own widgets, and `panels(subject, settings)`,
    which yields its panels one by one; it may have `spread(subjects, settings)`, which yields panels of all seeds. A
    page that is not of a counter has `show(catalogue)` in their place, which returns what it has drawn by key.
    """

    title: str
    icon: str  # a name of Material Symbols
    sees: str  # one sentence: what is seen
    paper: str  # the paper's claim about it
    module: str  # in app/explorer/pages/
    of_counter: bool = True
    recurrent_only: bool = False  # whether it says nothing about transformers

    @property
    def script(self) -> str:
        """Its file, by which streamlit knows it."""
        spec = find_spec(self._import_name)
        assert spec is not None
        assert spec.origin is not None
        return spec.origin

    def load(self) -> ModuleType:
        """The page's module, which this imports."""
        return import_module(self._import_name)

    @property
    def _import_name(self) -> str:
        return f"app.explorer.pages.{self.module}"


Settings = Any  # a frozen dataclass of each page's own
