"""Draws a page: the sidebar, its sentence and the paper's, its controls, and its panels for one counter or two."""

from collections.abc import Iterator
from itertools import count
from types import ModuleType

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.escape import for_markdown
from app.explorer import cache, state
from app.explorer.cache import SharedCounter
from app.explorer.catalogue import Catalogue, Entry
from app.explorer.draw import draw_panel
from app.explorer.glossary import glossary_table, in_plain_words
from app.explorer.page import DrawnPanel, Note, Page, Panel, Panels, Settings
from app.explorer.takeaway import attend
from models.errors import CountLensError
from models.families import TRANSFORMER
from training.paper.score_table import cell_of

MOST_OFFERED = 16  # counters in place of one that a page cannot show
NO_OTHER = "none"  # of the comparison counter
BEST = "best"  # the checkpoint that a run is known by, and no snapshot
# Streamlit leaves wide margins above a page and beside it.
LESS_MARGIN = """<style>
[data-testid=stMainBlockContainer] { padding: 4rem clamp(1rem, 3vw, 3rem) 2rem }
[data-testid=stMainBlockContainer] h1 { padding-top: 0 }
</style>"""


def show(page: Page, catalogue: Catalogue) -> None:
    """The page."""
    state.begin()
    st.html(LESS_MARGIN)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.title(page.title, anchor=False, width="content")
        with st.popover("Words", icon=":material/dictionary:", help="What the words on these pages mean"):
            st.markdown(glossary_table())
    st.markdown(f"{page.sees}  \n:gray[The paper: {page.paper}]")
    note = st.container()
    if catalogue.default is None:
        st.info(f"There are no counters yet: train one with `countlens train`. {catalogue.without_shipped}")
        return
    entries, step = _choose(catalogue)
    with st.spinner("Loading what this page needs", show_time=True):
        view = page.load()
    if page.recurrent_only and not any(map(_is_recurrent, entries)):
        _offer_recurrent(catalogue, entries[0])
        attend({})
    else:
        attend(_show_counters(view, catalogue, entries, step) if page.of_counter else view.show(catalogue))
    with note:
        state.show_refused()


def _show_counters(
    view: ModuleType, catalogue: Catalogue, entries: list[Entry], step: int | None
) -> dict[str, DrawnPanel]:
    """The page's controls and its panels, in a column for each counter; returns what it has drawn by key."""
    subjects: list[SharedCounter | CountLensError] = [_open(entry, step) for entry in entries]
    first = next((subject for subject in subjects if isinstance(subject, SharedCounter)), None)
    settings = None
    if first is not None:
        with st.container(border=True, key="controls"):
            try:
                settings = view.controls(first)
            except CountLensError as error:
                _show_message(error, catalogue)
    columns = st.columns(len(entries), gap="medium") if len(entries) > 1 else [st.container()]
    drawn: dict[str, DrawnPanel] = {}
    for place, (column, entry, subject) in enumerate(zip(columns, entries, subjects, strict=True)):
        with column:
            if len(entries) > 1:
                st.subheader(for_markdown(entry.name), anchor=False)
            if isinstance(subject, CountLensError):
                st.error(catalogue.readable(subject), icon=":material/broken_image:")
            elif settings is not None:
                panels = view.panels(subject, settings)
                alone = len(entries) == 1
                drawn |= _show_panels(panels, catalogue, subject, f"panel-{place}", alone)
    if settings is not None and hasattr(view, "spread"):
        drawn |= _show_spread(view, catalogue, entries[0], settings)
    return drawn


def _show_spread(view: ModuleType, catalogue: Catalogue, entry: Entry, settings: Settings) -> dict[str, DrawnPanel]:
    """Panels of all seeds of a counter, if several are here and the switch is on."""
    seeds = [other for other in catalogue.sound if cell_of(other.name) == cell_of(entry.name)]
    if len(seeds) < 2 or not state.toggle("seeds", f"All {len(seeds)} seeds that are here"):
        return {}
    subjects = [cache.open_counter(seed) for seed in seeds]
    return _show_panels(view.spread(subjects, settings), catalogue, subjects[0], "spread", alone=True)


def _is_recurrent(entry: Entry) -> bool:
    """Whether it has states to show. A broken file may have some: its page then says why it cannot be opened."""
    return entry.info is None or entry.info.family != TRANSFORMER


def _offer_recurrent(catalogue: Catalogue, entry: Entry) -> None:
    """The recurrent counters that are here, those of the same task and with few layers first."""
    task = (entry.info.task or {}).get("name") if entry.info is not None else None
    infos = {other.name: other.info for other in catalogue.sound if _is_recurrent(other) and other.info is not None}
    names = sorted(
        infos, key=lambda name: ((infos[name].task or {}).get("name") != task, infos[name].model["n_layers"])
    )
    st.info(
        f"{for_markdown(entry.name)} is a transformer, and a transformer has no state that goes from token to token: "
        "it looks back with attention. This page is about recurrent counters; these are here:",
        icon=":material/info:",
    )
    with st.container(horizontal=True):
        for name in names[:MOST_OFFERED]:
            st.button(for_markdown(name), on_click=state.choose, args=("counter", name))


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
    task, layers = info.task or {}, info.model.get("n_layers")
    scores, last = (
        " / ".join(f"{of[side]:.1f}" for side in ("ind", "ood") if side in of) for of in (info.scores, info.last_scores)
    )
    last = f" (best checkpoint), {last} % (last one)" if last else ""
    summary = (
        f"{task.get('name', 'no task')}{' with bos' if task.get('bos') else ''}, "
        f"{info.architecture}, {layers} layer{'s' * (layers != 1)}, "
        f"{info.model.get('d_model')} wide. Right at trained lengths / in longer rows: "
        f"{scores or 'not scored'} %{last}"
    )
    st.caption(for_markdown(summary))


def _open(entry: Entry, step: int | None) -> SharedCounter | CountLensError:
    """The counter, at the latest of its snapshots that is not after the step; or why there is none."""
    earlier = [kept for kept in entry.snapshots if step is not None and kept <= step]
    try:
        return cache.open_counter(entry, max(earlier, default=None))
    except CountLensError as error:
        return error


def _show_panels(
    panels: Panels, catalogue: Catalogue, subject: SharedCounter, key: str, alone: bool
) -> dict[str, DrawnPanel]:
    """The panels of one counter, each as soon as it is there; returns what it has drawn by key.

    Where a counter stands alone, two halves make a row.
    """
    drawn: dict[str, DrawnPanel] = {}
    halves: Iterator[DeltaGenerator] = iter(())
    for number in count():
        with st.container():
            try:
                with st.empty().container():  # for the spinner, which goes when the panel is there
                    panel = next(panels)
                    if isinstance(panel, Panel):
                        drawn[f"{key}-{number}"] = DrawnPanel(panel.alt, panel.chooses)
            except StopIteration:
                return drawn
            except CountLensError as error:
                _show_message(error, catalogue)
                return drawn
            if isinstance(panel, Note):
                st.info(catalogue.readable(in_plain_words(panel.text)))
                continue
            place = next(halves, None) if panel.half and alone else st.container()
            if place is None:
                halves = iter(st.columns(2, gap="medium"))
                place = next(halves)
            filename = "-".join(f"{subject.name} {panel.caption}".lower().replace("/", " ").split())
            with place:
                draw_panel(panel, f"{key}-{number}", filename)
    raise AssertionError("count() does not end")


def _show_message(error: CountLensError, catalogue: Catalogue) -> None:
    """An error that a user can mend is a sentence in place of what it prevents."""
    st.info(catalogue.readable(in_plain_words(str(error))), icon=":material/info:")
