"""Where tokens look: a layer's attention over one row, and how far positions move its scores."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter, kept_panel
from app.explorer.call import Call
from app.explorer.page import Note, Panel, Panels
from app.explorer.pages import behaviour
from app.figures.attention import variation_panels
from app.figures.attention_row import pattern_figure, scores_figure
from models.config import TransformerConfig
from models.errors import CountLensError
from probes.reading.answers import example_row
from probes.reading.attention_row import attention_row
from probes.reading.attention_variation import attention_variation
from probes.result import NotApplicable, task_of_counter

ALL_HEADS = "all"
WIDTH = 260  # of a widget, in pixels


@dataclass(frozen=True)
class Settings:
    row: behaviour.Row
    layer: int
    head: int | None  # None: all of the layer


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the row, the layer and the head; none for a counter that has no attention."""
    cfg = subject.counter.cfg
    if not isinstance(cfg, TransformerConfig):
        task, _ = task_of_counter(subject.counter)
        return Settings(behaviour.Row("", task.train_length, 0, 0), 0, None)
    row = behaviour.choose_row(subject)
    layer, head = 0, ALL_HEADS
    with st.container(horizontal=True, gap="medium"):
        if cfg.n_layers > 1:
            layer = state.slider("layer", "Layer", 0, cfg.n_layers - 1, 0, width=WIDTH)
        if cfg.n_heads > 1:
            head = state.select("head", "Head", [ALL_HEADS, *map(str, range(cfg.n_heads))], width=WIDTH)
    return Settings(row, layer, None if head == ALL_HEADS else int(head))


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The pattern and the scores of the row, then the variation of scores over all pairs of positions."""
    try:
        yield from _row(subject, settings)
    except CountLensError as error:  # a row that was typed wrongly says nothing about the rest
        if isinstance(error, NotApplicable):
            raise
        yield Note(str(error))
    variation = subject.call(attention_variation)
    if len(variation.value.tokens) == 1:
        yield Note(f"Variation of the scores over positions: {variation.value.verdict.sentence}")
    else:
        caption = "Variation of the scores over positions"
        yield kept_panel(subject, caption, variation_panels, variation, settings.layer)


def _row(subject: SharedCounter, settings: Settings) -> Panels:
    row, head = settings.row, settings.head
    shift = row.shift if subject.counter.has_positions else 0
    tokens = row.tokens or subject.call(example_row, length=row.length, seed=row.seed).value
    found = subject.call(attention_row, tokens, layer=settings.layer, shift=shift)
    shown = found.value if head is None else found.value.head(head)
    for caption, draw in (("Attention pattern", pattern_figure), ("Scores before the softmax", scores_figure)):
        yield Panel(
            caption,
            Call(draw, found, head=head),
            shown.to_frame,
            shown.verdict.sentence if draw is pattern_figure else "",
        )
