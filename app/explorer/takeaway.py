"""What one can take away from a panel: the picture as SVG or PNG, the numbers as CSV, and the code.

The browser that shows the picture also writes it to a file, so that the server needs no browser of its own.
"""

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from app.explorer.page import Panel

_JS = Path(__file__).with_name("charts.js")


def take_away(panel: Panel, key: str, filename: str) -> None:
    """Buttons under a panel whose container has this key."""
    with st.container(horizontal=True, gap="small", key=f"{key}-files"):
        _charts()(key=f"{key}-pictures", data={"chart": key, "filename": filename}, width="content")
        st.download_button(
            "CSV",
            lambda: panel.frame().to_csv(index=False, float_format="%.9g"),
            f"{filename}.csv",
            "text/csv",
            key=f"{key}-csv",
            on_click="ignore",
        )
        with st.popover("Code", key=f"{key}-code"):
            st.code(panel.figure.code("figure") + "\nfigure.show()\n", language="python")


def describe(alt_texts: dict[str, str]) -> None:
    """Gives every chart, by its container's key, the sentence that a screen reader says."""
    _charts()(key="alt-texts", data={"alt": alt_texts}, height=1)


@cache
def _charts() -> Any:
    html = "<div class='buttons'></div>"
    css = _JS.with_suffix(".css").read_text()
    return st.components.v2.component("countlens_charts", html=html, css=css, js=_JS.read_text())
