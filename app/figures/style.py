"""One look for all figures: a colour-blind-safe palette (Okabe & Ito) with one colour per architecture."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.io import from_json, templates

from models.architectures import architectures
from models.families import OTHER_COLOUR

if TYPE_CHECKING:  # needs torch
    from probes.stats import Interval

FAINT = "rgba(128, 128, 128, 0.12)"
INK, BLACK = "#333333", "#000000"
ON_DARK = "#E6E6E6"  # in place of BLACK and INK on a dark page
SPLIT_COLOURS = {"ind": "#0072B2", "ood": "#D55E00", "aux": "#999999"}
SPLIT_BANDS = {"ind": "rgba(0, 114, 178, 0.18)", "ood": "rgba(213, 94, 0, 0.18)", "aux": "rgba(153, 153, 153, 0.18)"}
SHARES_SCALE = "Blues"  # of heat maps of percentages: white is 0
SEQUENTIAL = "Cividis"  # from nothing to much
DIVERGING = "PuOr"  # around a middle that means chance
TEMPLATE_LAYOUT = (
    *("font", "title", "colorway", "paper_bgcolor", "plot_bgcolor", "xaxis", "yaxis", "scene", "coloraxis"),
    *("hovermode", "hoverlabel", "annotationdefaults", "autotypenumbers"),
)
# Of an axis whose labels are short. Where an axis makes room for its labels, a browser draws the figure twice.
FIXED_ROOM = {"automargin": False, "title": {"standoff": 8}}
# Residues go round and so do their colours. Lightness changes along with hue, so that neighbours also differ to
# whoever sees fewer hues; dark all round, for a white page.
CYCLE = ("#6B3A6E", "#A03A4A", "#C4692B", "#D3A52B", "#8DB255", "#2F9E8F", "#2F7FB8", "#45519E", "#6B3A6E")


def _lean_template() -> go.layout.Template:
    """What our figures need of plotly's white template: the whole of it takes longer than the rest of a figure."""
    white = templates["plotly_white"].to_plotly_json()
    layout = {name: white["layout"][name] for name in TEMPLATE_LAYOUT}
    return go.layout.Template(layout=layout, data={kind: white["data"][kind] for kind in ("bar", "heatmap")})


def _halo(colour: str) -> str:
    return ", ".join([f"0 0 3px {colour}"] * 3)


TEMPLATE = _lean_template()
HALO, HALO_ON_DARK = _halo("white"), _halo("black")  # around letters that stand on points


def line_of(architecture: str) -> dict[str, str]:
    """Colour and dash of an architecture's line in all figures; grey where the name is none."""
    known = architectures().get(architecture)
    return {"color": OTHER_COLOUR, "dash": "solid"} if known is None else {"color": known.colour, "dash": known.dash}


def colour_of(architecture: str) -> str:
    """The colour of an architecture in all figures."""
    return line_of(architecture)["color"]


def cyclic_colours(number: int) -> list[str]:
    """As many colours, in a circle."""
    steps = [[place / (len(CYCLE) - 1), colour] for place, colour in enumerate(CYCLE)]
    return [str(colour) for colour in sample_colorscale(steps, [step / number for step in range(number)])]


def dress(figure: go.Figure, alt: str, title: str = "", **layout: Any) -> go.Figure:
    """The figure in the house's look, with a sentence that says what it shows to whoever cannot see it."""
    look = {
        "title": title,
        "template": TEMPLATE,
        "meta": {"alt": alt},
        "margin": {"l": 60, "r": 20, "t": 70 if title else 40, "b": 50} | layout.pop("margin", {}),
    }
    look |= dict.fromkeys(_axes_without_room(figure), FIXED_ROOM)
    return figure.update_layout(look | layout)  # in one go: to set a template takes long


def _axes_without_room(figure: go.Figure) -> Iterator[str]:
    """The axes of a figure that do not ask for as much room as their labels take."""
    layout = figure.layout.to_plotly_json()
    for name in {"xaxis", "yaxis", *layout}:
        if name.startswith(("xaxis", "yaxis")) and layout.get(name, {}).get("automargin") is None:
            yield name


def error_bars(intervals: Iterable["Interval"], **style: Any) -> dict[str, Any]:
    """Plotly's error bars from each value to both ends of its interval."""
    above, below = zip(*((each.high - each.value, each.value - each.low) for each in intervals), strict=True)
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below} | style


def on_dark(figure: go.Figure) -> go.Figure:
    """The same figure for a dark page: black and dark grey become light, the rest stays as it is."""
    text = figure.to_json()
    for colour in (BLACK, INK):
        text = text.replace(f'"{colour}"', f'"{ON_DARK}"')
    return from_json(text.replace(HALO, HALO_ON_DARK))
