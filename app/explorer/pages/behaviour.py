"""What a counter answers: one row token by token, and accuracy at each position."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCall, SharedCounter
from app.explorer.page import Note, Panel, Panels, panel_of
from app.figures.behaviour import position_figure
from app.figures.row import row_figure
from models.errors import CountLensError
from probes.reading.answers import example_row, predict_tokens
from probes.reading.behaviour import behaviour
from probes.result import task_of_counter

ROWS = 128  # of each split, for the accuracy at each position


@dataclass(frozen=True)
class Settings:
    tokens: str  # as typed; empty: a row is drawn
    length: int
    seed: int
    shift: int


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the row and its shift."""
    task, _ = task_of_counter(subject.counter)
    longest = subject.counter.cfg.max_position if subject.counter.has_positions else task.longest_row
    most = min(task.ood_lengths[1], longest - task.prefix)
    length, seed, shift = min(task.train_length, most), 0, 0
    tokens = state.text("tokens", "Row", placeholder="type tokens with blanks between them, or build a row below")
    left, middle, right = st.columns(3, gap="medium")
    if not tokens:
        with left:
            length = state.slider("length", "Length", 2, most, length)
        if not task.rows_repeat:
            with right:
                seed = state.slider("seed", "Which random row", 0, 99, 0)
    if subject.counter.has_positions:
        n_tokens = len(tokens.split()) if tokens else length + task.prefix
        with middle:
            shift = state.slider("shift", "Shift of the position ids", 0, longest - n_tokens, 0)
    return Settings(tokens, length, seed, shift)


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The row, then accuracy at each position."""
    try:
        yield _row(subject, settings)
    except CountLensError as error:  # a row that was typed wrongly says nothing about the rest
        yield Note(str(error))
    accuracy = subject.call(behaviour, rows=ROWS)
    # Kept with its numbers: it stays while the row changes, and plotly is slow.
    figure = SharedCall(subject, position_figure, accuracy, subject.name, subject.architecture)
    found = accuracy.value
    yield Panel("Accuracy at each position", figure, found.to_frame, found.verdict.sentence)


def _row(subject: SharedCounter, settings: Settings) -> Panel:
    shift = settings.shift if subject.counter.has_positions else 0
    tokens = settings.tokens or subject.call(example_row, length=settings.length, seed=settings.seed).value
    return panel_of("Token by token", row_figure, subject.call(predict_tokens, tokens, shift=shift))
