"""One look for all figures: a colour-blind-safe palette (Okabe & Ito) with one colour an architecture."""

from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

ARCHITECTURE_COLOURS = {
    "nope": "#000000",
    "sine": "#0072B2",
    "ape": "#009E73",
    "rope": "#D55E00",
    "spe": "#CC79A7",
}
ARCHITECTURE_DASHES = {"rope": "dot"}  # it often lies exactly on nope
OTHER_COLOUR = "#56B4E9"
FAINT = "rgba(128, 128, 128, 0.12)"
INK = "#333333"
SEQUENTIAL = "Cividis"  # from nothing to much
DIVERGING = "PuOr"  # around a middle that means chance
# Residues go round and so do their colours. Lightness changes along with hue, so that neighbours also differ to
# whoever sees fewer hues; dark all round, for a white page.
CYCLE = ("#6B3A6E", "#A03A4A", "#C4692B", "#D3A52B", "#8DB255", "#2F9E8F", "#2F7FB8", "#45519E", "#6B3A6E")


def cyclic_colours(number: int) -> list[str]:
    """As many colours, in a circle."""
    steps = [[place / (len(CYCLE) - 1), colour] for place, colour in enumerate(CYCLE)]
    return [str(colour) for colour in sample_colorscale(steps, [step / number for step in range(number)])]


def dress(figure: go.Figure, alt: str, title: str = "", **layout: Any) -> go.Figure:
    """The figure in the house's look, with a sentence that says what it shows to whoever cannot see it."""
    figure.update_layout(
        title=title,
        template="plotly_white",
        meta={"alt": alt},
        margin={"l": 60, "r": 20, "t": 60 if title else 30, "b": 50},
    )
    return figure.update_layout(**layout)
