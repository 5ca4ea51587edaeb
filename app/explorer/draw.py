"""Draws one panel: caption, picture, and what one can take away."""

from collections.abc import Callable

import streamlit as st

from app.explorer.cache import Subject
from app.explorer.page import Panel
from app.explorer.takeaway import take_away
from app.figures.style import on_dark

CONFIG = {"displaylogo": False}


def draw_panel(
    panel: Panel,
    key: str,
    filename: str,
    subject: Subject | None = None,
    on_click: Callable[[str], None] | None = None,
    least_width: int = 0,
) -> dict[str, str]:
    """Draws a panel in a container of this key; returns its alt text by it.

    `on_click` is told the first of the customdata of a point that is clicked. Below `least_width` pixels the picture
    scrolls.
    """
    figure = on_dark(panel.figure) if st.context.theme.type == "dark" else panel.figure
    with st.container(key=key):
        st.markdown(f"**{panel.caption}**" + (f"  \n{panel.said}" if panel.said else ""))
        if least_width:
            st.html(
                f"<style>.st-key-{key}-scroll {{ overflow-x: auto }}"
                f".st-key-{key}-scroll > * {{ min-width: {least_width}px }}</style>"
            )
        with st.container(key=f"{key}-scroll"):
            chart = f"{key}-chart"
            if on_click is None:
                st.plotly_chart(figure, key=chart, config=CONFIG)
            else:
                st.plotly_chart(
                    figure, key=chart, config=CONFIG, selection_mode="points", on_select=lambda: _tell(chart, on_click)
                )
        take_away(panel, subject, key, filename)
    return {key: panel.figure.layout.meta["alt"]}


def _tell(chart: str, on_click: Callable[[str], None]) -> None:
    points = st.session_state[chart]["selection"]["points"]
    if points:
        on_click(points[0]["customdata"][0])
