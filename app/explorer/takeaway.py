"""Downloads of a panel: the picture as SVG or PNG, the numbers as CSV, and the code.

The browser that shows the picture also writes it to a file, so that the server needs no browser of its own.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from app.explorer.page import DrawnPanel, Panel

ATTENDANT = "attendant"  # key of the component that watches the charts
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


def attend(drawn: Mapping[str, DrawnPanel]) -> None:
    """Gives every chart, by its container's key, the sentence that a screen reader says, and hears clicks on it."""
    data = {
        "alt": {key: panel.alt for key, panel in drawn.items()},
        "clicks": [key for key, panel in drawn.items() if panel.chooses],
    }
    _charts()(key=ATTENDANT, data=data, height=1, on_click_change=lambda: _choose(drawn))


def _choose(drawn: Mapping[str, DrawnPanel]) -> None:
    """Sets the widgets that a click is about; called before they are drawn again."""
    st.session_state.update(chosen_values(drawn, st.session_state[ATTENDANT].click))


def chosen_values(drawn: Mapping[str, DrawnPanel], click: Any) -> dict[str, Any]:
    """What a click sets, by widget. It comes from a browser: anything but values that widgets may take is passed over.

    >>> chosen_values({"map": DrawnPanel("A map.", {"layer": range(2)})}, {"chart": "map", "values": [1]})
    {'layer': 1}
    >>> chosen_values({"map": DrawnPanel("A map.", {"layer": range(2)})}, {"chart": "map", "values": [7]})
    {}
    """
    if not isinstance(click, Mapping) or not isinstance(click.get("values"), list):
        return {}
    panel = drawn.get(str(click.get("chart")))
    if panel is None or len(click["values"]) != len(panel.chooses):
        return {}
    chosen = {}
    for (name, allowed), value in zip(panel.chooses.items(), click["values"], strict=True):
        kept = [option for option in allowed if str(option) == str(value)]
        chosen.update({name: kept[0]} if kept else {})
    return chosen if len(chosen) == len(panel.chooses) else {}


@cache
def _charts() -> Any:
    html = "<div class='buttons'></div>"
    css = _JS.with_suffix(".css").read_text()
    return st.components.v2.component("countlens_charts", html=html, css=css, js=_JS.read_text())
