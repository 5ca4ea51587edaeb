"""Which counters there are, how well they count, and how the paper's do."""

import streamlit as st

from app.explorer import state
from app.explorer.catalogue import Catalogue
from app.explorer.draw import draw_panel
from app.explorer.page import Panel
from app.explorer.takeaway import follow
from app.explorer.zoo import zoo_grid
from app.figures.zoo import zoo_figure
from models.errors import CountLensError

CODE = """from app.explorer.catalogue import read_catalogue, start_folders
from app.explorer.zoo import zoo_grid
from app.figures.zoo import zoo_figure

figure = zoo_figure(zoo_grid(read_catalogue(start_folders(())).entries.values()))"""


def show(catalogue: Catalogue) -> dict[str, str]:
    """The grid, and the files that are broken; returns alt texts by key."""
    place = st.container()
    typed = state.text("folder", "Only counters below this folder", placeholder="all of the explorer's folders")
    try:
        shown = catalogue.below(typed) if typed else catalogue
    except CountLensError as error:
        st.warning(str(error))
        shown = catalogue
    grid = zoo_grid(shown.sound)
    panel = Panel("Percent right, IND / OOD: the best counter of each cell", zoo_figure(grid), grid.to_frame, CODE)
    with place:
        with st.container(key="open"):
            st.page_link("views/behaviour.py", label=f"Open {st.session_state['counter']}", icon=":material/pin:")
        alt_texts = draw_panel(panel, "zoo", "zoo", on_click=open_counter, least_width=900)
    if shown.broken:
        st.markdown(f"**Broken files: {len(shown.broken)}**")
        st.table({"counter": [e.name for e in shown.broken], "why": [e.broken for e in shown.broken]})
    return alt_texts


def open_counter(name: str) -> None:
    """Chooses this counter, and follows the link to the page that says what it does."""
    state.put("counter", name)
    follow("open")
