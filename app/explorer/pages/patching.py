"""What activations of one row do in another: by cell, token by token, and which algorithm that speaks for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter, open_copy
from app.explorer.call import Call
from app.explorer.page import WIDE, Note, Panel, Panels, panel_of
from app.figures.edited_rows import patched_row_figure
from app.figures.mechanisms import claims_figure
from app.figures.memory import memory_claims_figure
from app.figures.patching import patching_caption, patching_figure
from models.counter import Counter
from models.recurrent import Recurrent
from probes.inputs.counterfactuals import Pair, counterfactual_pair
from probes.mechanism.memory_verdict import memory_mechanisms
from probes.mechanism.verdict import mechanisms
from probes.patching.engine import DIRECTIONS
from probes.patching.metrics import METRICS
from probes.patching.pairs import PER_HEAD, USUAL_PAIRS, known_sites, pair_patch, usual_pair, usual_sites
from probes.patching.patch_cells import axes_of
from probes.patching.patched_row import patched_row
from probes.result import NotApplicable, task_of_counter

ROWS = 8  # pairs of them
SHORTEST, USUAL_LENGTH = 6, 20
PAIR = "Two rows, clean and corrupted, that differ in what is named here: an activation of one goes to the other."
METRIC = "What is compared with and without the patch."
DIRECTION = "denoise puts activations of the clean row into the corrupted one, noise the other way round."
WIDGETS = {"pos": "position"}  # what an axis is called in the URL, where that is another name
MECHANISM = "Which stated algorithm it follows"


@dataclass(frozen=True)
class ChosenPatch:
    """A sweep over one site, and the cell of it that is looked at."""

    pair: str
    site: str
    metric: str
    direction: str
    length: int
    cell: tuple[tuple[str, int], ...]  # layer, pos, head: those that the site has
    row: int


@dataclass(frozen=True)
class Settings:
    view: ChosenPatch | str  # or why nothing can be patched
    mechanism: bool


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the pair, the site and one cell."""
    view: ChosenPatch | str
    try:
        view = _choose_view(subject.counter)
    except NotApplicable as reason:
        view = str(reason)
    mechanism = state.toggle(
        "mechanism", "Test the mechanism", help="Swaps variables of stated algorithms between rows; up to half a minute"
    )
    return Settings(view, mechanism)


def _choose_view(counter: Counter) -> ChosenPatch:
    task, _ = task_of_counter(counter)
    columns = st.columns(5)
    with columns[4]:
        most = task.train_length
        length = state.slider("length", "Length", min(SHORTEST, most), most, min(USUAL_LENGTH, most))
    pairs = dict(_pairs(counter, length))
    usual = usual_pair(counter, 1, length=length).name
    with columns[0]:
        pair = pairs[state.select("pair", "Pair of rows", list(pairs), usual, help=PAIR)]
    differ = "labels" in pair.changes
    with columns[1]:
        site = state.select("site", "Place in the model", known_sites(counter), usual_sites(counter)[0])
    with columns[2]:
        metrics = [name for name in METRICS if differ or name != "logit_diff"]
        metric = state.select("metric", "Metric", metrics, "logit_diff" if differ else "accuracy", help=METRIC)
    with columns[3]:
        direction = state.select("direction", "Direction", DIRECTIONS, "denoise" if differ else "noise", help=DIRECTION)
    n_pos = pair.clean.token_ids.shape[1]
    sizes = {"layer": counter.cfg.n_layers, "pos": n_pos, "head": getattr(counter.cfg, "n_heads", 1)}
    cell, places = {}, st.columns(5)
    for place, axis in zip(places, _axes(site), strict=False):
        with place:
            name = WIDGETS.get(axis, axis)
            cell[axis] = state.slider(name, f"Patched {name}", 0, sizes[axis] - 1, 0)
    with places[-1]:
        row = state.slider("row", "Row below", 0, ROWS - 1, 0)
    return ChosenPatch(pair.name, site, metric, direction, length, tuple(cell.items()), row)


def _pairs(counter: Counter, length: int) -> Iterator[tuple[str, Pair]]:
    """The pairs of equal length that a counter has."""
    for name in USUAL_PAIRS:
        try:
            yield name, counterfactual_pair(name, counter, 1, length=length)
        except NotApplicable:
            continue


def _axes(site: str) -> tuple[str, ...]:
    """The axes that a cell of a site has."""
    return ("layer", "head") if site.startswith(PER_HEAD) else tuple(axis for axis in axes_of(site) if axis != "src")


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The map, one patch token by token, and the mechanism where it is asked for."""
    if isinstance(settings.view, str):
        yield Note(f"Nothing to patch: {settings.view}. The page States exchanges states of recurrent counters.")
    else:
        yield from _patches(subject, settings.view)
    if settings.mechanism:
        yield mechanism_panel(subject)


def _patches(subject: SharedCounter, view: ChosenPatch) -> Panels:
    shared: dict[str, Any] = {"pair": view.pair, "direction": view.direction, "batch": ROWS, "length": view.length}
    sweep = shared | {"sites": (view.site,), "metric": view.metric}
    patches = subject.call(pair_patch, **sweep)
    found = patches.value
    yield Panel(
        patching_caption(found, view.site),
        Call(patching_figure, patches, view.site),
        found.to_frame,
        f"{found.setting} {found.finding(view.site)} A click on a cell chooses it.",
        chooses={WIDGETS.get(axis, axis): found.grids[view.site].axes[axis] for axis, _ in view.cell},
    )
    one = subject.call(patched_row, **shared, site=view.site, row=view.row, **dict(view.cell))
    yield panel_of("One patch, token by token", patched_row_figure, one, least_width=WIDE)


def mechanism_panel(subject: SharedCounter) -> Panel:
    """The verdict on its mechanism, with the claims that it rests on."""
    alone = open_copy(subject)
    if isinstance(subject.counter, Recurrent):
        return panel_of(MECHANISM, memory_claims_figure, alone.call(memory_mechanisms), least_width=WIDE)
    return panel_of(MECHANISM, claims_figure, alone.call(mechanisms), least_width=WIDE)
