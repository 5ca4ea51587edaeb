"""Which counters there are, how well they count, and how the paper's do."""

from collections import Counter
from collections.abc import Iterator

import streamlit as st

from app.escape import for_markdown
from app.explorer import state
from app.explorer.call import Call, Given
from app.explorer.catalogue import Catalogue
from app.explorer.dropped import FOLDER, MAX_MB, forget, keep
from app.explorer.page import DrawnPanel, Panel
from app.explorer.registry import PAGES
from app.explorer.seeds import cells_of, read_all_scores, seeds_of
from app.explorer.zoo import Grid, zoo_grid
from app.figures.seeds_table import seeds_table
from app.figures.zoo_table import zoo_table
from models.errors import CountLensError
from training.paper.agreement import Accuracy
from training.paper.score_table import ScoreRow, cell_of
from training.paper.tables import paper_numbers_of

NO_CELL = "none"
UPLOADER, KNOWN_FILES, ERRORS = "dropped", "dropped files", "errors of dropped files"  # keys of the session's state
FOR_NEWCOMERS = "New here? Start with the page Paper"
NEARNESS = (
    "Points between our accuracy and the paper's, by its tables. `ind` are rows of trained lengths, `ood` longer ones; "
    "`within_5` is the share of cells that lie at most 5 points apart. Lines with `the paper's medians` compare those "
    "with its best seeds: a yardstick, as both are of the same runs."
)
WIDTH = 400  # of a widget, in pixels
GRID = "zoo_grid((catalogue := read_catalogue(start_folders(()))).entries.values(), read_all_scores(catalogue))"
IMPORTS = (
    "from app.explorer.catalogue import read_catalogue, start_folders",
    "from app.explorer.seeds import read_all_scores",
    "from app.explorer.zoo import zoo_grid",
)


def show(catalogue: Catalogue) -> dict[str, DrawnPanel]:
    """The grid, and the files that are broken; returns what is drawn by key."""
    paper = PAGES["paper"]
    st.page_link(paper.script, label=FOR_NEWCOMERS, icon=f":material/{paper.icon}:")
    place = st.container()
    typed = state.text("folder", "Only counters below this folder", placeholder="all of the explorer's folders")
    try:
        shown = catalogue.below(typed) if typed else catalogue
    except CountLensError as error:
        st.warning(for_markdown(error))
        shown = catalogue
    scores = _scores(catalogue)
    grid = zoo_grid(
        (entry for entry in shown.sound if not entry.name.startswith(f"{FOLDER}/")),
        scores if shown is catalogue else (),
    )
    with place:
        _choose_seeds(catalogue, scores)
        st.markdown(
            "**Percent right at trained lengths / in longer rows, of the best counter of each task and architecture**"
        )
        st.html(zoo_table(grid, Counter(row.cell for row in scores)))
        drawn = _picture(grid) if state.toggle("drawn", "As a picture, to take away") else {}
        if state.toggle("near", "How near to the paper"):
            _nearness(scores)
    _offer_to_drop(catalogue)
    if catalogue.without_shipped:
        st.caption(catalogue.without_shipped)
    broken = shown.broken_files
    if broken:
        st.markdown(f"**Broken files: {len(broken)}**")
        reasons = [shown.readable(reason) for reason in broken.values()]
        st.table({"counter": [for_markdown(name) for name in broken], "why": reasons})
    return drawn


def _offer_to_drop(catalogue: Catalogue) -> None:
    """A place to drop counters on, and what was dropped there in this visit."""
    st.file_uploader(
        "Drop a counter of your own: a .safetensors file that `countlens train` wrote",
        type="safetensors",
        accept_multiple_files=True,
        key=UPLOADER,
        on_change=_keep_dropped,
        help=f"Up to {MAX_MB} MB. Only you see it, and only for this visit.",
    )
    for error in st.session_state.pop(ERRORS, []):
        st.warning(for_markdown(error))
    here = sorted(name for name in catalogue.entries if name.startswith(f"{FOLDER}/"))
    if not here:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"Dropped here: {for_markdown(', '.join(here))}. The sidebar chooses among them.", width="content")
        # A plain link would open another visit, in which they are not there.
        page = PAGES["behaviour"]
        st.page_link(page.script, label=page.title, icon=f":material/{page.icon}:")
        st.button("Forget them", on_click=forget)


def _keep_dropped() -> None:
    """Keeps the files that were just dropped, and chooses the last of them."""
    known = st.session_state.setdefault(KNOWN_FILES, set())
    for file in st.session_state[UPLOADER]:
        if file.file_id in known:
            continue
        known.add(file.file_id)
        try:
            state.choose("counter", keep(file))
        except CountLensError as error:
            st.session_state.setdefault(ERRORS, []).append(str(error))


def _picture(grid: Grid) -> dict[str, DrawnPanel]:
    """The same as a figure; what it needs is slow to import."""
    from app.explorer.draw import draw_panel
    from app.figures.zoo import zoo_figure

    figure = Call(zoo_figure, Given("grid", grid, GRID, IMPORTS))
    caption = "The zoo, percent right at trained lengths / in longer rows"
    panel = Panel(caption, figure, grid.to_frame, least_width=900)
    draw_panel(panel, "zoo", "zoo")
    return {"zoo": DrawnPanel(panel.alt)}


def _scores(catalogue: Catalogue) -> list[ScoreRow]:
    """Every seed that was scored; none, with a note, where a table cannot be read."""
    try:
        return read_all_scores(catalogue)
    except CountLensError as error:
        st.warning(catalogue.readable(error))
        return []


def _choose_seeds(catalogue: Catalogue, scores: list[ScoreRow]) -> None:
    """The seeds of one cell: the number of seeds in a cell of the grid leads here."""
    cells = cells_of(scores, catalogue.sound)
    cell = state.select("cell", "All seeds of", [NO_CELL, *cells], width=WIDTH)
    if cell == NO_CELL:
        return
    seeds = seeds_of(cell, scores, catalogue.sound)
    st.html(seeds_table(seeds, list(_paper(cell, scores, catalogue))))


def _paper(cell: str, scores: list[ScoreRow], catalogue: Catalogue) -> Iterator[tuple[str, Accuracy]]:
    """What the paper has for a cell: its best seed, and the median of five."""
    row = next((row for row in scores if row.cell == cell), None)
    if row is not None:
        numbers = row.paper
    else:
        entry = next((entry for entry in catalogue.sound if cell_of(entry.name) == cell), None)
        numbers = paper_numbers_of(entry.info) if entry is not None and entry.info is not None else None
    if numbers is not None:
        for name, cell_numbers in (("the paper's best", numbers.best), ("the paper's median", numbers.median)):
            if cell_numbers is not None:
                yield name, Accuracy(cell_numbers.ind, cell_numbers.ood)


def _nearness(scores: list[ScoreRow]) -> None:
    """How near all seeds that were trained are to the paper's, by the score tables beside the counters."""
    from training.paper.comparison import compare
    from training.paper.summary import summary_frame

    if not scores:
        st.info("There is no scores.csv in these folders: `countlens ship` writes one.")
        return
    st.caption(NEARNESS)
    st.dataframe(summary_frame(compare(scores)).round(2), hide_index=True)
