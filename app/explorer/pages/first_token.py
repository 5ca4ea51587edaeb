"""What a linear probe reads of the first token at each site."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCall, SharedCounter
from app.explorer.page import Note, Panel, Panels
from app.figures.first_token import readings_figure
from probes.reading.first_token import first_token_probe

QUANTITIES = {"first token": "first", "shift": "shift"}
ALL_LAYERS = "all"
WIDTH = 260  # of a widget, in pixels


@dataclass(frozen=True)
class Settings:
    quantity: str  # value of QUANTITIES
    layer: int | None  # None: all


def controls(subject: SharedCounter) -> Settings:
    """Widgets that choose what is drawn; all of it is computed at once."""
    layers, layer = subject.counter.cfg.n_layers, ALL_LAYERS
    with st.container(horizontal=True, gap="medium"):
        quantity = state.select("read", "What is read", list(QUANTITIES), width=WIDTH)
        if layers > 1:
            layer = state.select("layers", "Layers", [ALL_LAYERS, *map(str, range(layers))], width=WIDTH)
    return Settings(QUANTITIES[quantity], None if layer == ALL_LAYERS else int(layer))


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """What is read at each site."""
    read = subject.call(first_token_probe)
    found = read.value
    if settings.quantity == "shift" and found.ignores_positions:
        yield Note("The shift cannot be read: this counter ignores position ids.")
    else:
        yield Panel(
            "Read by a linear probe, on shifts that it has not seen",
            SharedCall(subject, readings_figure, read, settings.quantity, layer=settings.layer),
            found.to_frame,
            f"{found.verdict.sentence[0].upper()}{found.verdict.sentence[1:]}.",
        )
