"""The states of a recurrent counter: where they go over a row, and what the memory of another place does."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter
from app.explorer.call import Call
from app.explorer.page import WIDE, Panel, Panels, panel_of
from app.figures.edited_rows import transplanted_row_figure
from app.figures.states import COLOURS, circle_figure, trajectory_figure, turning_figure
from probes.mechanism.transplants import transplant
from probes.reading.periods import LARGEST_MODULUS, USUAL_MODULUS
from probes.reading.state_trajectory import (
    LEAST_MODULUS,
    LEAST_ROUNDS,
    state_trajectory,
)
from probes.result import task_of_counter

SHORTEST, LONGEST, USUAL = 20, 200, 100  # rows
USUAL_SOURCE, USUAL_POSITION = 7, 14
PICTURES = {"2D": "Two principal components", "3D": "Three principal components", "circle": "The plane that goes round"}


@dataclass(frozen=True)
class Settings:
    layer: int
    length: int
    modulus: int
    picture: str  # key of PICTURES
    colours: str  # one of COLOURS
    source: int  # token after which the memory is taken, from 1
    position: int  # token after which it is put, from 1


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the row, and for what is drawn of it."""
    task, _ = task_of_counter(subject.counter)
    left, middle, right, last = st.columns(4)
    with left:
        picture = state.select("picture", "Picture", list(PICTURES))
    with middle:
        colours = state.select("colours", "Colours", COLOURS, disabled=picture == "circle")
    with right:
        length = state.slider("length", "Length", SHORTEST, LONGEST, USUAL)
    with last:
        most = min(LARGEST_MODULUS, length // LEAST_ROUNDS)
        usual = min(getattr(task, "base", USUAL_MODULUS), most)
        modulus = state.slider("modulus", "Modulus m", LEAST_MODULUS, most, usual)
    layer = state.slider("layer", "Layer", 0, subject.counter.cfg.n_layers - 1, 0)
    most = min(length, task.ood_lengths[1])
    left, right = st.columns(2)
    with left:
        source = state.slider("source", "Take the memory after token", 1, most, USUAL_SOURCE)
    with right:
        position = state.slider("position", "and put it after token", 1, most, USUAL_POSITION)
    return Settings(layer, length, modulus, picture, colours, source, position)


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """Where states go, and how they turn."""
    states = subject.call(state_trajectory, layer=settings.layer, length=settings.length, modulus=settings.modulus)
    caption = PICTURES[settings.picture]
    if settings.picture == "circle" and states.value.circle is not None:
        yield panel_of(caption, circle_figure, states)
        yield Panel("Angle and radius", Call(turning_figure, states), states.value.to_frame)
    else:
        dimensions = 3 if settings.picture == "3D" else 2
        yield panel_of(caption, trajectory_figure, states, settings.colours, settings.modulus, dimensions)
    task, _ = task_of_counter(subject.counter)
    moved = subject.call(
        transplant,
        source_column=task.prefix + settings.source - 1,
        column=task.prefix + settings.position - 1,
        length=min(settings.length, task.ood_lengths[1]),
    )
    yield panel_of("The memory of another place", transplanted_row_figure, moved, least_width=WIDE)
