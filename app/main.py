"""The explorer's server: `streamlit run app/main.py`, or `countlens explore`. Folders of counters follow after `--`.

Pages are imported before the server answers: while the first one is drawn it would take half as long again.
"""

from pathlib import Path

import streamlit as st

from app.explorer.slow_imports import import_pages

import_pages()
app = st.App(Path(__file__).with_name("visit.py"))
