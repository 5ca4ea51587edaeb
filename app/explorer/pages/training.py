"""How a counter learned: scores and pictures over the snapshots that its training kept."""

from dataclasses import dataclass, replace
from threading import Lock

import streamlit as st

from app.explorer import state
from app.explorer.cache import SharedCall, SharedCounter, kept_panel
from app.explorer.call import Given
from app.explorer.catalogue import FileKey
from app.explorer.page import Panels
from app.explorer.registry import PAGES
from app.explorer.snapshots import snapshot_files
from app.figures.dynamics import dynamics_figure
from app.figures.growth import accuracy_growth_figure, pca_growth_figure
from probes.over_training.dynamics import CURVES, dynamics
from probes.over_training.growth import accuracy_growth, pca_growth
from probes.sites import GLOBAL_KINDS, Site, kinds_of

SLOW = ("first-token effect",)  # takes a second run of every row
PICTURES = ("accuracy", "components")
USUAL_SITE = "resid_post"
Files = tuple[tuple[int, FileKey], ...]  # the snapshots of a run, with their steps


@dataclass(frozen=True)
class Settings:
    picture: str  # one of PICTURES
    site: Site
    all_curves: bool


def controls(subject: SharedCounter) -> Settings:
    """Widgets for what is drawn; the step itself is in the sidebar."""
    left, middle, right = st.columns(3)
    with left:
        picture = state.select("moving", "Moving picture", PICTURES)
    kind, layer = USUAL_SITE, 0
    if picture == "components":
        with middle:
            kind = state.select("site", "Place in the model", kinds_of(subject.counter), USUAL_SITE)
        with right:
            if kind not in GLOBAL_KINDS:
                layer = state.slider("layer", "Layer", 0, subject.counter.cfg.n_layers - 1, 0)
    all_curves = state.toggle("curves", "With the first token's effect", help="Takes a second, once")
    with st.container(horizontal=True):
        st.markdown("At this step:", width="content")
        for page in PAGES.values():
            if page.of_counter and page.module != "training":
                st.page_link(page.script, label=page.title, icon=f":material/{page.icon}:")
    return Settings(picture, Site(kind, None if kind in GLOBAL_KINDS else layer), all_curves)


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """A picture that moves, then curves with the chosen step marked."""
    files: Files = tuple((step, FileKey.of(path)) for step, path in snapshot_files(subject).items())
    run = Given("run", {step: key.path for step, key in files}, repr(subject.reference))
    # The same at every step; and it loads counters of its own, so that no page waits for this one's lock.
    alone = replace(subject, key=files, lock=Lock())
    step = subject.info.step
    if settings.picture == "accuracy":
        grown = SharedCall(alone, accuracy_growth, run)
        yield kept_panel(alone, "Accuracy at each position, over training", accuracy_growth_figure, grown, step)
    else:
        moved = SharedCall(alone, pca_growth, run, settings.site)
        yield kept_panel(alone, "States of equal tokens, over training", pca_growth_figure, moved, step)
    curves = [name for name in CURVES if settings.all_curves or name not in SLOW]
    rises = kept_panel(alone, "What rises when", dynamics_figure, SharedCall(alone, dynamics, run, curves), step)
    sentence = f"{rises.sentence} A click on a curve chooses the step."
    yield replace(rises, sentence=sentence, chooses={"step": [str(kept) for kept, _ in files]})
