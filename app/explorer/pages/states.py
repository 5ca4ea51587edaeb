"""The states of a recurrent counter: where they go over a row, and what a state of another place does."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import Subject, compute
from app.explorer.page import Panel, Panels
from app.figures.edited_rows import transplanted_row_figure
from app.figures.states import COLOURS, circle_figure, trajectory_figure, turning_figure
from probes.mechanism.transplants import transplant
from probes.reading.periods import LARGEST_MODULUS, USUAL_MODULUS
from probes.reading.state_trajectory import (
    LEAST_MODULUS,
    LEAST_ROUNDS,
    StateTrajectory,
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
    source: int  # token whose state is transplanted, from 1
    position: int  # token whose state it replaces, from 1


def controls(subject: Subject) -> Settings:
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
        source = state.slider("source", "Take the state after token", 1, most, USUAL_SOURCE)
    with right:
        position = state.slider("position", "and put it after token", 1, most, USUAL_POSITION)
    return Settings(layer, length, modulus, picture, colours, source, position)


def panels(subject: Subject, settings: Settings) -> Panels:
    """Where states go, and how they turn."""
    asked = {"layer": settings.layer, "length": settings.length, "modulus": settings.modulus}
    found = compute(subject, state_trajectory, **asked)
    yield _picture(found, settings, asked)
    if found.circle is not None and settings.picture == "circle":
        yield Panel(
            "Angle and radius",
            turning_figure(found),
            found.to_frame,
            _code("turning_figure", "found", asked),
        )
    task, _ = task_of_counter(subject.counter)
    where = {
        "source_column": task.prefix + settings.source - 1,
        "column": task.prefix + settings.position - 1,
        "length": min(settings.length, task.ood_lengths[1]),
    }
    moved = compute(subject, transplant, **where)
    yield Panel(
        "A state of another place",
        transplanted_row_figure(moved),
        moved.to_frame,
        f"""from app.figures.edited_rows import transplanted_row_figure
from probes.mechanism.transplants import transplant

figure = transplanted_row_figure(transplant(counter, {_arguments(where)}))""",
        moved.verdict.sentence,
    )


def _picture(found: StateTrajectory, settings: Settings, asked: dict[str, int]) -> Panel:
    if settings.picture == "circle" and found.circle is not None:
        figure, code = circle_figure(found), _code("circle_figure", "found", asked)
    else:
        how = (settings.colours, settings.modulus, 3 if settings.picture == "3D" else 2)
        figure = trajectory_figure(found, *how)
        code = _code("trajectory_figure", ", ".join(["found", *map(repr, how)]), asked)
    return Panel(PICTURES[settings.picture], figure, found.to_frame, code, found.verdict.sentence)


def _code(figure: str, arguments: str, asked: dict[str, int]) -> str:
    return f"""from app.figures.edited_rows import transplanted_row_figure
from app.figures.states import {figure}
from probes.reading.state_trajectory import state_trajectory

found = state_trajectory(counter, {_arguments(asked)})
figure = {figure}({arguments})"""


def _arguments(asked: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in asked.items())
