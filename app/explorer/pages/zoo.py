"""Which counters there are, how well they count, and how the paper's do."""

import streamlit as st

from app.escape import for_markdown
from app.explorer import state
from app.explorer.call import Call, Given
from app.explorer.catalogue import Catalogue
from app.explorer.page import Panel
from app.explorer.zoo import Grid, zoo_grid
from app.figures.zoo_table import zoo_table
from models.errors import CountLensError

GRID = "zoo_grid(read_catalogue(start_folders(())).entries.values())"
IMPORTS = ("from app.explorer.catalogue import read_catalogue, start_folders", "from app.explorer.zoo import zoo_grid")


def show(catalogue: Catalogue) -> dict[str, str]:
    """The grid, and the files that are broken; returns alt texts by key."""
    place = st.container()
    typed = state.text("folder", "Only counters below this folder", placeholder="all of the explorer's folders")
    try:
        shown = catalogue.below(typed) if typed else catalogue
    except CountLensError as error:
        st.warning(for_markdown(error))
        shown = catalogue
    grid = zoo_grid(shown.sound)
    with place:
        st.markdown(
            "**Percent right in rows as long as in training (IND) / beyond that (OOD), best counter of each cell**"
        )
        st.html(zoo_table(grid))
        alt_texts = _picture(grid) if state.toggle("drawn", "As a picture, to take away") else {}
        if state.toggle("near", "How near to the paper"):
            _nearness(catalogue)
    if catalogue.without_shipped:
        st.caption(catalogue.without_shipped)
    broken = shown.broken_files
    if broken:
        st.markdown(f"**Broken files: {len(broken)}**")
        reasons = [shown.readable(reason) for reason in broken.values()]
        st.table({"counter": [for_markdown(name) for name in broken], "why": reasons})
    return alt_texts


def _picture(grid: Grid) -> dict[str, str]:
    """The same as a figure; what it needs is slow to import."""
    from app.explorer.draw import draw_panel
    from app.figures.zoo import zoo_figure

    figure = Call(zoo_figure, Given("grid", grid, GRID, IMPORTS))
    panel = Panel("The zoo, percent right, IND / OOD", figure, grid.to_frame)
    draw_panel(panel, "zoo", "zoo", least_width=900)
    return {"zoo": panel.alt}


def _nearness(catalogue: Catalogue) -> None:
    """How near all seeds that were trained are to the paper's, by the score tables beside the counters."""
    from training.paper.comparison import compare
    from training.paper.score_table import SCORES, merge_scores, read_scores
    from training.paper.summary import summary_frame

    tables = [folder / SCORES for folder in catalogue.folders if (folder / SCORES).is_file()]
    try:
        rows = merge_scores(*(read_scores(path) for path in tables))
    except CountLensError as error:
        st.warning(catalogue.readable(error))
        return
    if not rows:
        st.info("There is no scores.csv in these folders: `countlens ship` writes one.")
        return
    st.dataframe(summary_frame(compare(rows)).round(2), hide_index=True)
