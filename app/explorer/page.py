"""What a page is: data in the registry, and a module of `app/explorer/pages/` that chooses, calls and shows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # both are slow to import, and the first page needs neither
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Panel:
    """A picture, the numbers in it, and the code that draws it again."""

    caption: str
    figure: "go.Figure"  # from app/figures/, with an alt text
    frame: Callable[[], "pd.DataFrame"]  # called when somebody takes the CSV
    code: str  # Python that makes `figure` from `counter`
    said: str = ""  # a sentence under the caption, such as the result's verdict
    half: bool = False  # whether it stands beside another half, where there is one counter and room


@dataclass(frozen=True)
class Note:
    """A sentence in place of a panel."""

    text: str


Panels = Iterator[Panel | Note]


@dataclass(frozen=True)
class Page:
    """One entry of the navigation.

    `module` has `controls(subject) -> Settings`, which draws the page's own widgets, and `panels(subject, settings)`,
    which yields its panels one by one. A page that is not of a counter has `show(catalogue)` in their place, which
    returns alt texts by key.
    """

    title: str
    icon: str  # a name of Material Symbols
    sees: str  # one sentence: what is seen
    paper: str  # the paper's claim about it
    module: str  # in app/explorer/pages/
    of_counter: bool = True

    @property
    def script(self) -> str:
        """Its file, by which streamlit knows it."""
        spec = find_spec(self._import_name)
        assert spec is not None
        assert spec.origin is not None
        return spec.origin

    def load(self) -> ModuleType:
        """The page's module. It is imported here, for it may need torch, and the first page does not."""
        return import_module(self._import_name)

    @property
    def _import_name(self) -> str:
        return f"app.explorer.pages.{self.module}"


Settings = Any  # a frozen dataclass of each page's own
