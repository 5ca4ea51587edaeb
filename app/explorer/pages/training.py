"""How a counter came about: scores and pictures over the snapshots that its training kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import streamlit as st

from app.explorer import state
from app.explorer.cache import Subject, compute
from app.explorer.catalogue import FileKey, read_snapshots
from app.explorer.page import Panel, Panels
from app.explorer.registry import PAGES
from app.figures.dynamics import dynamics_figure
from app.figures.growth import accuracy_growth_figure, pca_growth_figure
from models.counter import Counter
from models.find import CHECKPOINT
from probes.over_training.dynamics import CURVES, LEAST_SNAPSHOTS, Dynamics, dynamics
from probes.over_training.growth import AccuracyGrowth, PcaGrowth, accuracy_growth, pca_growth
from probes.result import NotApplicable
from probes.sites import GLOBAL_KINDS, Site, kinds_of

SLOW = ("first-token effect",)  # takes longer than all others together
PICTURES = ("accuracy", "components")
USUAL_SITE = "resid_post"
Files = tuple[tuple[int, FileKey], ...]  # the snapshots of a run, with their steps


@dataclass(frozen=True)
class Settings:
    picture: str  # one of PICTURES
    site: Site
    all_curves: bool


def controls(subject: Subject) -> Settings:
    """Widgets for what is drawn; the step itself is in the sidebar."""
    left, middle, right = st.columns(3)
    with left:
        picture = state.select("moving", "Moving picture", PICTURES)
    kind, layer = USUAL_SITE, 0
    if picture == "components":
        with middle:
            kind = state.select("site", "Site", kinds_of(subject.counter), USUAL_SITE)
        with right:
            if kind not in GLOBAL_KINDS:
                layer = state.slider("layer", "Layer", 0, subject.counter.cfg.n_layers - 1, 0)
    all_curves = state.toggle("curves", "With the first token's effect", help="Takes half a minute, once")
    with st.container(horizontal=True):
        st.markdown("At this step:", width="content")
        for page in PAGES.values():
            if page.of_counter and page.module != "training":
                st.page_link(page.script, label=page.title, icon=f":material/{page.icon}:")
    return Settings(picture, Site(kind, None if kind in GLOBAL_KINDS else layer), all_curves)


def panels(subject: Subject, settings: Settings) -> Panels:
    """A picture that moves, then curves with the chosen step marked."""
    files = _files(subject)
    # The same whatever step is chosen; and it loads counters of its own, so nobody has to wait for this one.
    run = replace(subject, key=files[-1][1], lock=Lock())
    step = subject.info.step
    if settings.picture == "accuracy":
        grown = compute(run, accuracy_over_training, files=files)
        yield Panel(
            "Accuracy at each position, over training",
            accuracy_growth_figure(grown, step),
            grown.to_frame,
            f"""from app.figures.growth import accuracy_growth_figure
from probes.over_training.growth import accuracy_growth

figure = accuracy_growth_figure(accuracy_growth({subject.reference!r}), {step})""",
            grown.verdict.sentence,
        )
    else:
        moved = compute(run, components_over_training, files=files, site=settings.site)
        yield Panel(
            "States of equal tokens, over training",
            pca_growth_figure(moved, step),
            moved.to_frame,
            f"""from app.figures.growth import pca_growth_figure
from probes.over_training.growth import pca_growth
from probes.sites import Site

site = {settings.site!r}
figure = pca_growth_figure(pca_growth({subject.reference!r}, site), {step})""",
            moved.verdict.sentence,
        )
    curves = tuple(name for name in CURVES if settings.all_curves or name not in SLOW)
    found = compute(run, curves_over_training, files=files, curves=curves)
    yield Panel(
        "What rises when",
        dynamics_figure(found, step),
        found.to_frame,
        f"""from app.figures.dynamics import dynamics_figure
from probes.over_training.dynamics import dynamics

figure = dynamics_figure(dynamics({subject.reference!r}, {list(curves)!r}), {step})""",
        found.verdict.sentence,
    )


def curves_over_training(counter: Counter, files: Files, curves: tuple[str, ...]) -> Dynamics:
    """Scores over a run's snapshots."""
    return dynamics(_paths(files), list(curves))


def accuracy_over_training(counter: Counter, files: Files) -> AccuracyGrowth:
    """Accuracy at each position over a run's snapshots."""
    return accuracy_growth(_paths(files))


def components_over_training(counter: Counter, files: Files, site: Site) -> PcaGrowth:
    """States of equal tokens over a run's snapshots."""
    return pca_growth(_paths(files), site)


def _files(subject: Subject) -> Files:
    """The sound snapshots of the run, none of them outside of its folder."""
    folder = subject.path.parent
    by_step, _ = read_snapshots(folder if subject.path.name == CHECKPOINT else folder.parent)
    if len(by_step) < LEAST_SNAPSHOTS:
        raise NotApplicable(
            f"{subject.name} kept fewer than {LEAST_SNAPSHOTS} snapshots, too few for curves over training: train one "
            "with `--snapshots 12`, or look at mod10/ape-2L and mod10/spe-2L"
        )
    return tuple((step, FileKey.of(path)) for step, path in by_step.items())


def _paths(files: Files) -> dict[int, Path]:
    return {step: key.path for step, key in files}
