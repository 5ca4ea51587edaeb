"""What activations of one row do in another: by cell, token by token, and which algorithm that speaks for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import streamlit as st

from app.explorer import state
from app.explorer.cache import Subject, compute
from app.explorer.page import Note, Panel, Panels
from app.figures.edited_rows import patched_row_figure
from app.figures.mechanisms import claims_figure, transplant_figure
from app.figures.patching import patching_caption, patching_figure
from models.checkpoint import load_counter
from models.counter import Counter
from models.recurrent import Recurrent
from probes.inputs.counterfactuals import Pair, counterfactual_pair
from probes.mechanism.transplants import StateIsCount, state_is_count
from probes.mechanism.verdict import Mechanisms, mechanisms
from probes.patching.cells import axes_of
from probes.patching.engine import DIRECTIONS
from probes.patching.metrics import METRICS
from probes.patching.pairs import PER_HEAD, USUAL_PAIRS, known_sites, pair_patch, usual_pair, usual_sites
from probes.patching.patched_row import patched_row
from probes.result import NotApplicable, task_of_counter

ROWS = 8  # pairs of them
SHORTEST, USUAL_LENGTH = 6, 20


@dataclass(frozen=True)
class Asked:
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
    asked: Asked | str  # or why nothing can be patched
    mechanism: bool


def controls(subject: Subject) -> Settings:
    """Widgets for the pair, the site and one cell."""
    asked: Asked | str
    try:
        asked = _asked(subject.counter)
    except NotApplicable as reason:
        asked = str(reason)
    mechanism = state.toggle(
        "mechanism", "Test the mechanism", help="Swaps variables of stated algorithms between rows; up to half a minute"
    )
    return Settings(asked, mechanism)


def _asked(counter: Counter) -> Asked:
    task, _ = task_of_counter(counter)
    columns = st.columns(5)
    with columns[4]:
        most = task.train_length
        length = state.slider("length", "Length", min(SHORTEST, most), most, min(USUAL_LENGTH, most))
    pairs = dict(_pairs(counter, length))
    usual = usual_pair(counter, 1, length=length).name
    with columns[0]:
        pair = pairs[state.select("pair", "Pair", list(pairs), usual)]
    differ = "labels" in pair.changes
    with columns[1]:
        site = state.select("site", "Site", known_sites(counter), usual_sites(counter)[0])
    with columns[2]:
        metrics = [name for name in METRICS if differ or name != "logit_diff"]
        metric = state.select("metric", "Metric", metrics, "logit_diff" if differ else "accuracy")
    with columns[3]:
        direction = state.select("direction", "Direction", DIRECTIONS, "denoise" if differ else "noise")
    n_pos = pair.clean.token_ids.shape[1]
    sizes = {"layer": counter.cfg.n_layers, "pos": n_pos, "head": getattr(counter.cfg, "n_heads", 1)}
    cell, places = {}, st.columns(5)
    for place, axis in zip(places, _axes(site), strict=False):
        with place:
            name = {"pos": "position"}.get(axis, axis)
            cell[axis] = state.slider(name, f"Patched {name}", 0, sizes[axis] - 1, 0)
    with places[-1]:
        row = state.slider("row", "Row", 0, ROWS - 1, 0)
    return Asked(pair.name, site, metric, direction, length, tuple(cell.items()), row)


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


def panels(subject: Subject, settings: Settings) -> Panels:
    """The map, one patch token by token, and the mechanism where it is asked for."""
    if isinstance(settings.asked, str):
        yield Note(f"Nothing to patch: {settings.asked}. The page States exchanges states of recurrent counters.")
    else:
        yield from _patches(subject, settings.asked)
    if settings.mechanism:
        yield _mechanism(subject)


def _patches(subject: Subject, asked: Asked) -> Panels:
    shared: dict[str, Any] = {"pair": asked.pair, "direction": asked.direction, "batch": ROWS, "length": asked.length}
    sweep = shared | {"sites": (asked.site,), "metric": asked.metric}
    found = compute(subject, pair_patch, **sweep)
    yield Panel(
        patching_caption(found, asked.site),
        patching_figure(found, asked.site),
        found.to_frame,
        f"""from app.figures.patching import patching_figure
from probes.patching.pairs import pair_patch

found = pair_patch(counter, {_arguments(sweep)})
figure = patching_figure(found, {asked.site!r})""",
        f"{found.setting} {found.finding(asked.site)}",
    )
    one = shared | {"site": asked.site, "row": asked.row} | dict(asked.cell)
    row = compute(subject, patched_row, **one)
    yield Panel(
        "One patch, token by token",
        patched_row_figure(row),
        row.to_frame,
        f"""from app.figures.edited_rows import patched_row_figure
from probes.patching.patched_row import patched_row

figure = patched_row_figure(patched_row(counter, {_arguments(one)}))""",
        row.verdict.sentence,
    )


def _arguments(asked: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in asked.items())


def _mechanism(subject: Subject) -> Panel:
    # It loads a counter of its own, so that nobody has to wait for this one.
    alone = replace(subject, lock=Lock())
    found = compute(alone, mechanism_of, path=subject.path)
    if isinstance(found, Mechanisms):
        figure, code = claims_figure(found), ("claims_figure", "mechanisms", "mechanisms")
    else:
        figure, code = transplant_figure(found), ("transplant_figure", "transplants", "state_is_count")
    return Panel(
        "Which stated algorithm it follows",
        figure,
        found.to_frame,
        """from app.figures.mechanisms import {0}
from probes.{1} import {2}

figure = {0}({2}(counter))""".format(*code),
        found.verdict.sentence,
    )


def mechanism_of(counter: Counter, path: Path) -> Mechanisms | StateIsCount:
    """What swaps say of an attention counter, and transplants of a recurrent one."""
    own = load_counter(path)
    return state_is_count(own) if isinstance(own, Recurrent) else mechanisms(own)
