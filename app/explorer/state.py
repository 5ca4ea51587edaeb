"""Widgets whose value is in the URL, so that a link reproduces the view. Values that a widget cannot take are named.

This is where URL values enter: a value is one of a widget's options, a number in its range, a switch, or a short
printable text. Anything else gives the default, with a note.

The names in the URL are the same on every page: counter, versus, step, length, shift, layer, site, head, position.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

from app.escape import for_markdown, shortened

T = TypeVar("T")

MOST_TYPED = 2000  # characters of a text
MOST_REFUSED = 5  # values that a note names
LONGEST_SHOWN = 80  # characters of a refused value
LINK, REFUSED = "values of the link", "refused values"  # keys of the session's state


def begin() -> None:
    """Call first in a run: keeps what the link says, before widgets take over. Only a session's first run has one."""
    is_first = LINK not in st.session_state
    st.session_state[LINK] = st.query_params.to_dict() if is_first else {}
    st.session_state.setdefault(REFUSED, {})


def select(name: str, label: str, options: Sequence[str], default: str | None = None, **more: Any) -> str:
    """A choice among names. `default` is the first, unless given."""
    if st.session_state.get(name, options[0]) not in options:
        del st.session_state[name]  # an option of another counter
    index = options.index(default) if default in options else 0
    value = st.selectbox(label, options, index, key=name, bind="query-params", **more)
    return _checked(name, str(value), str)


def slider(name: str, label: str, low: int, high: int, default: int, **more: Any) -> int:
    """A whole number between two others; no widget where there is only one."""
    if low >= high:
        return low
    value = st.slider(label, low, high, default, key=name, bind="query-params", **more)
    return _checked(name, int(value), int)


def in_order(name: str, label: str, options: Sequence[str], default: str, **more: Any) -> str:
    """A choice among names that have an order, on a slider."""
    if st.session_state.get(name, default) not in options:
        del st.session_state[name]
    value = st.select_slider(label, options, default, key=name, bind="query-params", **more)
    return _checked(name, str(value), str)


def text(name: str, label: str, **more: Any) -> str:
    """What is typed, if it is printable; empty at first."""
    value = str(st.text_input(label, key=name, bind="query-params", max_chars=MOST_TYPED, **more) or "")
    return _checked(name, value if value.isprintable() else "", str)


def toggle(name: str, label: str, **more: Any) -> bool:
    """On or off; off at first."""
    return _checked(name, bool(st.toggle(label, key=name, bind="query-params", **more)), _parse_switch)


def choose(name: str, value: Any) -> None:
    """Sets a widget before it is drawn: for callbacks."""
    st.session_state[name] = value


def show_refused() -> None:
    """A note on values of the URL that no widget takes, until the widget of that name is touched."""
    refused = [f"{name}={text}" for name, (text, _) in st.session_state[REFUSED].items()]
    if refused:
        more = f" and {len(refused) - MOST_REFUSED} more" if len(refused) > MOST_REFUSED else ""
        values = for_markdown(", ".join(refused[:MOST_REFUSED]) + more)
        st.info(f"The link asked for {values}, which is not there: this is the default instead.")


def _checked(name: str, value: T, parse: Callable[[str], T]) -> T:
    """The value of a widget; if the URL has another one, that is noted as refused."""
    refused = st.session_state[REFUSED]
    if name in refused and refused[name][1] != value:
        del refused[name]
    text = st.session_state[LINK].get(name)
    if text is not None and _parse(text, parse) != value:
        refused[name] = (shortened(text, LONGEST_SHOWN), value)
    return value


def _parse(text: str, parse: Callable[[str], T]) -> T | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _parse_switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
