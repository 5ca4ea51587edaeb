"""Draws one panel: caption, picture, and what one can take away."""

import streamlit as st

from app.escape import for_markdown
from app.explorer.glossary import in_plain_words
from app.explorer.page import Panel
from app.explorer.takeaway import take_away

CONFIG = {"displaylogo": False}


def draw_panel(panel: Panel, key: str, filename: str) -> None:
    """Draws a panel in a container of this key."""
    from app.figures.style import on_dark  # needs plotly, which takes a second

    figure = on_dark(panel.figure.value) if st.context.theme.type == "dark" else panel.figure.value
    if panel.chooses and figure.layout.clickmode != "event":
        figure.update_layout(clickmode="event")  # streamlit turns clicks off
    with st.container(key=key):
        sentence = f"  \n{for_markdown(in_plain_words(panel.sentence))}" if panel.sentence else ""
        st.markdown(f"**{for_markdown(panel.caption)}**{sentence}")
        if panel.least_width:
            st.html(  # on narrow screens alone: two counters side by side have less room each, and need no scrolling
                f"<style>@media (max-width: {panel.least_width}px) {{ .st-key-{key}-scroll {{ overflow-x: auto }}"
                f".st-key-{key}-scroll > * {{ min-width: {panel.least_width}px }} }}</style>"
            )
        with st.container(key=f"{key}-scroll"):
            st.plotly_chart(figure, key=f"{key}-chart", config=CONFIG)
        take_away(panel, key, filename)
