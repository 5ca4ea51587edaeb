"""Where equal tokens lie, by their position: principal components at one site, and the score of every modulus."""

from dataclasses import dataclass

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCounter
from app.explorer.call import Call
from app.explorer.page import Panel, Panels, spread_panel
from app.figures.marked_token import marked_pca_figure
from app.figures.mod_pca import score_figure, sentence
from app.figures.spread import score_spread
from probes.inputs.equal_tokens import contiguous_pids
from probes.reading.mod_pca import mod_pca
from probes.reading.periods import LARGEST_MODULUS, USUAL_MODULUS
from probes.result import task_of_counter
from probes.sites import GLOBAL_KINDS, HEAD_KINDS, Site, kinds_of

FEWEST = 3 * USUAL_MODULUS  # PIDs
ALL_HEADS = "all"
NO_MARK = "none"


@dataclass(frozen=True)
class Settings:
    site: Site
    modulus: int  # of the colours
    dimensions: int
    shift: int  # how far the first PID is from the earliest possible one
    number: int  # of PIDs
    marked: int | None  # PID of the token that is marked


def controls(subject: SharedCounter) -> Settings:
    """Widgets for the site, the PIDs and the colours."""
    usual = _usual_pids(subject)
    left, middle, right = st.columns(3, gap="medium")
    with left:
        site = _choose_site(subject)
    with middle:
        number = state.slider("pids", "Number of position ids", min(FEWEST, len(usual)), len(usual), len(usual))
        shift = 0
        if subject.counter.has_positions:
            shift = state.slider("shift", "Shift of the position ids", 0, len(usual) - number, 0)
    with right:
        task, _ = task_of_counter(subject.counter)
        base = getattr(task, "base", USUAL_MODULUS)
        modulus = state.slider("modulus", "Colours by position id modulo", 2, LARGEST_MODULUS, base)
        solid = state.toggle("solid", "Three components")
        marked = state.select("mark", "Marked position id", [NO_MARK, *map(str, usual)])
    return Settings(site, modulus, 3 if solid else 2, shift, number, None if marked == NO_MARK else int(marked))


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The picture, then the score of every modulus."""
    site, pids = settings.site, _chosen_pids(subject, settings)
    periods = subject.call(mod_pca, pids=pids, sites=(site,))
    found = periods.value
    here = found.at(site)
    yield Panel(
        "Principal components of equal tokens",
        Call(
            marked_pca_figure,
            periods,
            site,
            modulus=settings.modulus,
            dimensions=settings.dimensions,
            pid=settings.marked,
        ),
        found.coordinates_frame,
        f"{site.label}: {sentence(here)}. Between positions that differ modulo {here.modulus} lies {here.visible:.0%} "
        "of all variance, drift included. A click on a token marks it.",
        half=True,
        chooses={"mark": [str(pid) for pid in pids]},
    )
    yield Panel(
        "Score of every modulus",
        Call(score_figure, periods, site),
        found.to_frame,
        "Filled where positions that are equal modulo m lie together more than chance would have it.",
        half=True,
    )


def spread(subjects: list[SharedCounter], settings: Settings) -> Panels:
    """The score of every modulus, of every seed."""
    results = {
        subject.run: subject.call(mod_pca, pids=_chosen_pids(subject, settings), sites=(settings.site,))
        for subject in subjects
    }
    yield spread_panel("Score of every modulus, by seed", score_spread, results, "seed", site=settings.site)


def _choose_site(subject: SharedCounter) -> Site:
    cfg = subject.counter.cfg
    kind = state.select("site", "Place in the model", kinds_of(subject.counter), "resid_post")
    if kind in GLOBAL_KINDS:
        return Site(kind)
    layer = state.slider("layer", "Layer", 0, cfg.n_layers - 1, 0)
    if kind not in HEAD_KINDS or cfg.n_heads == 1:
        return Site(kind, layer)
    head = state.select("head", "Head", [ALL_HEADS, *map(str, range(cfg.n_heads))])
    return Site(kind, layer, None if head == ALL_HEADS else int(head))


def _usual_pids(subject: SharedCounter) -> range:
    """All that a counter has, up to the paper's 128."""
    task, _ = task_of_counter(subject.counter)
    places = contiguous_pids(subject.counter, None, task.prefix)
    return range(int(places[0]), int(places[-1]) + 1)


def _chosen_pids(subject: SharedCounter, settings: Settings) -> range:
    """As many as the counter has of those that were asked for; one without positions starts at its first."""
    usual = _usual_pids(subject)
    start = settings.shift if subject.counter.has_positions else 0
    return usual[min(start, max(0, len(usual) - settings.number)) :][: settings.number]
