"""The imports of the explorer's server: torch, TransformerLens, plotly and the pages, which take four seconds."""

import gc

from app.explorer.registry import PAGES


def import_pages() -> None:
    """Imports all pages and what they need, once in a server.

    No garbage is collected meanwhile: all objects stay, and the search takes a fourth longer. Later collections skip
    them: streamlit collects after every run, and would look through all of torch each time, for a third of a second.
    """
    gc.disable()
    try:
        for page in PAGES.values():
            page.load()
    finally:
        gc.enable()
    gc.freeze()
