"""What a counter answers: one row token by token, with its position ids or moved ones; accuracy by position."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter, kept_panel
from app.explorer.page import WIDE, Note, Panel, Panels, panel_of, spread_panel
from app.figures.behaviour import position_figure
from app.figures.edited_rows import moved_row_figure
from app.figures.row import row_figure
from app.figures.spread import accuracy_spread
from models.errors import CountLensError
from probes.mechanism.moved_row import Move, moved_row
from probes.reading.answers import example_row, predict_tokens
from probes.reading.behaviour import behaviour
from probes.result import task_of_counter

ROWS = 128  # of each split, for the accuracy at each position
NO_MOVE, OWN_MOVE = "nothing", "tokens of your choice"
# The first so many tokens, and by how many places; None: all of them.
PRESETS: dict[str, tuple[int | None, int]] = {
    "first token +3": (1, 3),
    "first five +3": (5, 3),
    "+10 everywhere": (None, 10),
}
FURTHEST_MOVE = 20  # places
WIDTH = 260  # of a widget, in pixels


@dataclass(frozen=True)
class Row:
    """A row, and where it begins."""

    tokens: str  # as typed; empty: a row is drawn
    length: int
    seed: int
    shift: int


@dataclass(frozen=True)
class Settings:
    row: Row
    move: Move | str  # or the name of a preset: how many tokens it moves depends on the row


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the row, and for position ids that are moved."""
    row = choose_row(subject)
    return Settings(row, _choose_move(subject, row) if subject.counter.has_positions else NO_MOVE)


def choose_row(subject: SharedCounter) -> Row:
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
        with middle:
            n_tokens = len(tokens.split()) if tokens else length + task.prefix
            shift = state.slider("shift", "Shift of the position ids", 0, longest - n_tokens, 0)
    return Row(tokens, length, seed, shift)


def _choose_move(subject: SharedCounter, row: Row) -> Move | str:
    """Which tokens' position ids are moved, and how far."""
    task, _ = task_of_counter(subject.counter)
    n_tokens = len(row.tokens.split()) if row.tokens else row.length + task.prefix
    move = state.select(
        "move",
        "Move the position ids of",
        [NO_MOVE, *PRESETS, OWN_MOVE],
        help="The right answers stay: they count tokens. What a counter answers now shows what it goes by.",
        width=WIDTH,
    )
    if move != OWN_MOVE:
        return move
    columns = st.columns(3, gap="medium")
    with columns[0]:
        first = state.slider("move_from", "From token", 1, n_tokens, 1)
    with columns[1]:
        last = state.slider("move_to", "to token", 1, n_tokens, 1)
    with columns[2]:
        by = state.slider("move_by", "by so many places", -FURTHEST_MOVE, FURTHEST_MOVE, 3)
    return Move(min(first, last), max(first, last), by)


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The row, then accuracy at each position."""
    try:
        yield _row(subject, settings)
    except CountLensError as error:  # a row that was typed wrongly says nothing about the rest
        yield Note(str(error))
    accuracy = subject.call(behaviour, rows=ROWS)
    name = subject.name, subject.architecture
    yield kept_panel(subject, "Accuracy at each position, with its 95 % interval", position_figure, accuracy, *name)


def spread(subjects: list[SharedCounter], settings: Settings) -> Panels:
    """Accuracy at each position, of every seed."""
    results = {subject.run: subject.call(behaviour, rows=ROWS) for subject in subjects}
    yield spread_panel("Accuracy at each position, by seed", accuracy_spread, results, "seed")


def _row(subject: SharedCounter, settings: Settings) -> Panel:
    row = settings.row
    shift = row.shift if subject.counter.has_positions else 0
    tokens = row.tokens or subject.call(example_row, length=row.length, seed=row.seed).value
    if settings.move == NO_MOVE or not subject.counter.has_positions:
        return panel_of("Token by token", row_figure, subject.call(predict_tokens, tokens, shift=shift))
    moves = (_move(settings.move, len(tokens.split())),)
    moved = subject.call(moved_row, tokens, moves, shift=shift)
    return panel_of("Position ids moved, token by token", moved_row_figure, moved, least_width=WIDE)


def _move(move: Move | str, n_tokens: int) -> Move:
    """The move itself, or that of a preset, in a row of so many tokens."""
    if isinstance(move, Move):
        return Move(min(move.first, n_tokens), min(move.last, n_tokens), move.by)
    size, by = PRESETS[move]
    return Move(1, min(size or n_tokens, n_tokens), by)
