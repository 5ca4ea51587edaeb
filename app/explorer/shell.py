"""Draws a page: the sidebar, its sentence and the paper's, its controls, and its panels for one counter or two."""

from itertools import count
from types import ModuleType

import streamlit as st

from app.explorer import cache, state
from app.explorer.cache import Subject
from app.explorer.catalogue import Catalogue, Entry
from app.explorer.draw import draw_panel
from app.explorer.page import Note, Page, Settings
from app.explorer.takeaway import describe
from models.errors import CountLensError

NO_OTHER = "none"  # of the comparison counter
BEST = "best"  # the checkpoint that a run is known by, and no snapshot


def show(page: Page, catalogue: Catalogue) -> None:
    """The page."""
    state.begin()
    st.title(page.title, anchor=False)
    st.markdown(f"{page.sees}  \n:gray[The paper: {page.paper}]")
    note = st.container()
    if catalogue.default is None:
        st.info("There are no counters yet: train one with `countlens train`.")
        return
    entries, step = _choose(catalogue)
    with st.spinner("Loading what this page needs", show_time=True):
        view = page.load()
    describe(_show_counters(view, entries, step) if page.of_counter else view.show(catalogue))
    with note:
        state.show_refused()


def _show_counters(view: ModuleType, entries: list[Entry], step: int | None) -> dict[str, str]:
    """The page's controls and its panels, in a column for each counter; returns alt texts by key."""
    subjects: list[Subject | CountLensError] = [_opened(entry, step) for entry in entries]
    first = next((subject for subject in subjects if isinstance(subject, Subject)), None)
    settings = None
    if first is not None:
        with st.container(border=True, key="controls"):
            try:
                settings = view.controls(first)
            except CountLensError as error:
                _show_message(error)
    columns = st.columns(len(entries), gap="medium") if len(entries) > 1 else [st.container()]
    alt_texts: dict[str, str] = {}
    for place, (column, entry, subject) in enumerate(zip(columns, entries, subjects, strict=True)):
        with column:
            if len(entries) > 1:
                st.subheader(entry.name, anchor=False)
            if isinstance(subject, CountLensError):
                st.error(str(subject), icon=":material/broken_image:")
            elif settings is not None:
                alt_texts |= _show_panels(view, subject, settings, f"panel-{place}")
    return alt_texts


def _choose(catalogue: Catalogue) -> tuple[list[Entry], int | None]:
    """The counter, the one to compare with, and the snapshot's step where the first has snapshots."""
    names = [entry.name for entry in (*catalogue.sound, *catalogue.broken)]
    names.sort(key=lambda name: name != catalogue.default)  # the default first: streamlit then takes a value from code
    with st.sidebar:
        name = state.select("counter", "Counter", names)
        other = state.select("versus", "Compare with", [NO_OTHER, *names])
        entries = [catalogue.entries[chosen] for chosen in (name, other) if chosen != NO_OTHER]
        step = BEST
        if entries[0].snapshots:
            steps = [*map(str, entries[0].snapshots), BEST]
            step = state.in_order("step", "Training step", steps, BEST, help="Snapshots that its training kept")
        _describe(entries[0])
    return entries, None if step == BEST else int(step)


def _describe(entry: Entry) -> None:
    """What the header says of a counter, in two lines."""
    if entry.info is None:
        return
    info = entry.info
    task = info.task or {}
    scores = " / ".join(f"{info.scores[side]:.1f}" for side in ("ind", "ood") if side in info.scores)
    st.caption(
        f"{task.get('name', 'no task')}{' with bos' if task.get('bos') else ''}, "
        f"{info.model.get('position', info.family)}, {info.model.get('n_layers')} layers, "
        f"{info.model.get('d_model')} wide. IND / OOD: {scores or 'not scored'} %"
    )


def _opened(entry: Entry, step: int | None) -> Subject | CountLensError:
    """The counter, at the latest of its snapshots that is not after the step; or why there is none."""
    earlier = [kept for kept in entry.snapshots if step is not None and kept <= step]
    try:
        return cache.open_subject(entry, max(earlier, default=None))
    except CountLensError as error:
        return error


def _show_panels(view: ModuleType, subject: Subject, settings: Settings, key: str) -> dict[str, str]:
    """The panels of one counter, each as soon as it is there; returns their alt texts by key."""
    alt_texts: dict[str, str] = {}
    panels = iter(view.panels(subject, settings))
    for number in count():
        with st.container():
            try:
                with st.empty().container():  # for the spinner, which goes when the panel is there
                    panel = next(panels)
            except StopIteration:
                return alt_texts
            except CountLensError as error:
                _show_message(error)
                return alt_texts
            if isinstance(panel, Note):
                st.info(panel.text)
            else:
                filename = "-".join(f"{subject.name} {panel.caption}".lower().replace("/", " ").split())
                alt_texts |= draw_panel(panel, f"{key}-{number}", filename, subject)
    raise AssertionError("count() does not end")


def _show_message(error: CountLensError) -> None:
    """An error that a user can mend is a sentence in place of what it prevents."""
    st.info(str(error), icon=":material/info:")
