"""What a counter loses without its first token: edited in chosen heads, live, and everywhere one by one."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import Subject, compute
from app.explorer.page import Panel, Panels
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


def controls(subject: Subject) -> Settings:
    """A choice of edits, and switches for layers and heads."""
    edits = EDITS if isinstance(subject.counter, Transformer) else STATE_EDITS
    left, right = st.columns([1, 2], gap="medium")
    with left:
        edit = state.select("edit", "What is done to the first token", list(edits))
        every = state.toggle("every", "Try every edit as well", help="Takes some seconds, once for each counter")
    with right:
        places = _choose_places(subject)
    return Settings(edit, places, every)


def panels(subject: Subject, settings: Settings) -> Panels:
    """The chosen edit by position; then every edit, where that is wanted."""
    found = compute(subject, chosen_edits, edit=settings.edit, places=settings.places)
    yield Panel(
        "Accuracy at each position",
        edited_figure(found),
        found.to_frame,
        f"""from app.figures.chosen_edits import edited_figure
from probes.ablation.chosen_edits import chosen_edits

found = chosen_edits(counter, {settings.edit!r}, places={settings.places!r})
figure = edited_figure(found)""",
        found.verdict.sentence,
    )
    if settings.every:
        yield from _every_edit(subject)


def _choose_places(subject: Subject) -> tuple[LayerHead, ...] | None:
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


def _every_edit(subject: Subject) -> Panels:
    found = compute(subject, bos_ablation)
    figures = {"Change in accuracy by edit": ablation_bars}
    if any(effect.head is not None for effect in found.effects):
        figures["Change by head that is cut off"] = head_maps
    for caption, draw in figures.items():
        yield Panel(
            caption,
            draw(found),
            found.to_frame,
            f"""from app.figures.bos import {draw.__name__}
from probes.ablation.bos_ablation import bos_ablation

figure = {draw.__name__}(bos_ablation(counter))""",
            found.verdict.sentence if draw is ablation_bars else "",
        )
