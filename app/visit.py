"""What the explorer's server runs for every visit and change. Folders of counters are arguments."""

import argparse
from pathlib import Path

import streamlit as st

from app.escape import for_markdown
from app.explorer import cache
from app.explorer.catalogue import start_folders
from app.explorer.dropped import with_dropped
from app.explorer.registry import PAGES
from app.explorer.shell import show
from models.errors import CountLensError

parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, action="append", default=[], help="a folder with counters")

st.set_page_config("CountLens", "🔢", layout="wide")
try:
    folders = start_folders(parser.parse_args().folder)
except CountLensError as error:
    st.error(for_markdown(error))
    st.stop()
pages = {
    path: st.Page(
        page.script,
        title=page.title,
        icon=f":material/{page.icon}:",
        url_path=path,
        default=path == next(iter(PAGES)),
    )
    for path, page in PAGES.items()
}
current = st.navigation(list(pages.values()))
# Drawn here and not by `current.run()`, so that a widget that two pages share keeps its value between them.
show(next(PAGES[path] for path, page in pages.items() if page == current), with_dropped(cache.catalogue(folders)))
