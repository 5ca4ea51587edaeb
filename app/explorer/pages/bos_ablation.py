"""What a counter loses without its first token: edited in chosen heads, live, and everywhere one by one."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter
from app.explorer.call import Call
from app.explorer.page import WIDE, Panel, Panels, panel_of
from app.figures.bos import ablation_bars, head_maps
from app.figures.chosen_edits import edited_figure
from models.transformer import Transformer
from probes.ablation.bos_ablation import bos_ablation
from probes.ablation.chosen_edits import EDITS, STATE_EDITS, chosen_edits
from probes.ablation.edits import LayerHead


@dataclass(frozen=True)
class Settings:
    edit: str  # key of EDITS
    places: tuple[LayerHead, ...] | None  # None: everywhere
    every: bool  # whether every edit is tried as well


def controls(subject: SharedCounter) -> Settings:
    """A choice of edits, and switches for layers and heads."""
    edits = EDITS if isinstance(subject.counter, Transformer) else STATE_EDITS
    left, right = st.columns([1, 2], gap="medium")
    with left:
        edit = state.select("edit", "What is done to the first token", list(edits))
        every = state.toggle("every", "Try every edit as well", help="Takes some seconds, once for each counter")
    with right:
        places = _choose_places(subject)
    return Settings(edit, places, every)


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The chosen edit by position; then every edit, where that is wanted."""
    edited = subject.call(chosen_edits, settings.edit, places=settings.places)
    yield panel_of("Accuracy at each position", edited_figure, edited)
    if settings.every:
        yield from _every_edit(subject)


def _choose_places(subject: SharedCounter) -> tuple[LayerHead, ...] | None:
    """A switch for each layer and, where that is off, one for each of its heads."""
    cfg = subject.counter.cfg
    n_heads = cfg.n_heads if isinstance(subject.counter, Transformer) else 1
    places: list[LayerHead] = []
    whole = 0
    for layer in range(cfg.n_layers):
        with st.container(horizontal=True):
            if state.toggle(f"L{layer}", f"Layer {layer}", value=True):
                places.append((layer, None))
                whole += 1
            elif n_heads > 1:
                heads = [head for head in range(n_heads) if state.toggle(f"L{layer}H{head}", f"head {layer}.{head}")]
                places += [(layer, head) for head in heads]
    return None if whole == cfg.n_layers else tuple(places)


def _every_edit(subject: SharedCounter) -> Panels:
    every = subject.call(bos_ablation)
    yield panel_of("Change in accuracy by edit", ablation_bars, every, least_width=WIDE)
    if any(effect.head is not None for effect in every.value.effects):
        maps = Call(head_maps, every)
        yield Panel("Change by head that is cut off", maps, every.value.to_frame, least_width=WIDE)
