"""Long work, one piece after the other, under a bar that says how far it is."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import streamlit as st

from app.escape import for_markdown

T = TypeVar("T")


def with_progress(pieces: Mapping[str, T], doing: str) -> Iterator[tuple[str, T]]:
    """The pieces by name; while one is worked on, the bar says `doing` and its name. It goes after the last."""
    bar = st.progress(0.0)
    for number, (name, piece) in enumerate(pieces.items()):
        bar.progress(number / len(pieces), f"{doing} {for_markdown(name)} ({number + 1} of {len(pieces)})")
        yield name, piece
    bar.empty()
