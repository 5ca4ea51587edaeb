"""What a linear probe reads of the first token at each place in the model."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCall, SharedCounter
from app.explorer.page import Note, Panel, Panels
from app.figures.first_token import readings_figure
from probes.reading.first_token import first_token_probe
from probes.result import task_of_counter

QUANTITIES = {"first token": "first", "shift": "shift"}
EQUAL, DIFFERENT = ROWS = ("equal tokens", "different tokens")
ALL_LAYERS = "all"
OF_DIFFERENT_TOKENS = "first_tok_heterogeneous/nope-1L or selective/nope-2L"
HELP = "Equal tokens can be told apart by their positions alone, different ones also by the causal mask."
WIDTH = 260  # of a widget, in pixels


@dataclass(frozen=True)
class Settings:
    quantity: str  # value of QUANTITIES
    rows: str  # one of ROWS
    layer: int | None  # None: all


def controls(subject: SharedCounter) -> Settings:
    """Widgets that choose what is drawn; all of it is computed at once."""
    layers, layer = subject.counter.cfg.n_layers, ALL_LAYERS
    task, _ = task_of_counter(subject.counter)
    with st.container(horizontal=True, gap="medium"):
        quantity = state.select("read", "What is read", list(QUANTITIES), width=WIDTH)
        usual = EQUAL if task.rows_repeat else DIFFERENT
        rows = state.select("rows", "Rows of", ROWS, usual, help=HELP, width=WIDTH)
        if layers > 1:
            layer = state.select("layers", "Layers", [ALL_LAYERS, *map(str, range(layers))], width=WIDTH)
    return Settings(QUANTITIES[quantity], rows, None if layer == ALL_LAYERS else int(layer))


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """What is read at each place, in rows of equal or of different tokens."""
    task, _ = task_of_counter(subject.counter)
    if settings.rows == DIFFERENT and task.rows_repeat:
        yield Note(
            f"{subject.name} was trained on rows of equal tokens and knows no others: for rows of different ones look "
            f"at {OF_DIFFERENT_TOKENS}."
        )
        return
    other_rows = {"equal_tokens": True} if settings.rows == EQUAL and not task.rows_repeat else {}
    probe = subject.call(first_token_probe, **other_rows)
    result = probe.value
    if settings.quantity == "shift" and result.ignores_positions:
        yield Note("The shift cannot be read: this counter ignores position ids.")
    else:
        yield Panel(
            "Read by a linear probe, on shifts that it has not seen",
            SharedCall(subject, readings_figure, probe, settings.quantity, layer=settings.layer),
            result.to_frame,
            f"{result.verdict.sentence[0].upper()}{result.verdict.sentence[1:]}.",
        )
