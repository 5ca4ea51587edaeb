"""Foreign text made harmless before it is shown: names of folders and files, metadata, URL values, error messages.

Whatever CountLens did not write itself goes through one of these functions on its way to a terminal, to markdown or
to a figure. HTML has `html.escape`.
"""

import re
from typing import TextIO

MOST_CHARACTERS = 2000  # of one text
# A code span: between single backticks nothing else is interpreted.
_CODE = re.compile(r"(?<!`)(`[^`]+`)(?!`)")
# Markdown makes links of bare addresses, whatever is escaped in them.
_ADDRESS = re.compile(r"([^\s`]*(?::/|www\.|@)[^\s`]*)", re.IGNORECASE)
_ACTIVE = re.compile(r"([\\`*_\[\]{}<>#!|~$&]|:(?=\w))")  # what markdown or streamlit gives a meaning to


def printable(text: object) -> str:
    r"""The text in one line, with everything that a terminal would obey or hide written as an escape.

    Control characters, line breaks, marks that turn the direction of writing and bytes that are no UTF-8 are visible.

    >>> print(printable("mod10\x1b[2J\n"))
    mod10\x1b[2J\n
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text))


def say(text: object = "", file: TextIO | None = None) -> None:
    """Prints a line that may hold foreign text."""
    print(printable(text), file=file, flush=True)


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, cut to at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def for_markdown(text: object) -> str:
    r"""The text such that markdown shows it as it is: no link, picture, colour or formula comes of it.

    Code between single backticks stays code, for error messages use it, and nothing in it is interpreted.

    >>> print(for_markdown("![x](//host/x.png) is no step: see `countlens list`"))
    \!\[x\](//host/x.png) is no step: see `countlens list`
    >>> print(for_markdown("see https://host/path"))
    see `https://host/path`
    """
    parts = _CODE.split(shortened(printable(text)))
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    """Text without code spans, with active characters escaped; addresses become code spans."""
    parts = _ADDRESS.split(text)
    return "".join(f"`{part}`" if number % 2 else _ACTIVE.sub(r"\\\1", part) for number, part in enumerate(parts))


def for_plotly(text: object) -> str:
    """The text such that plotly shows it as it is: it reads tags, entities and, in hover texts, `%{...}`.

    >>> for_plotly("<a href='//host'>R&D</a> %{x}")
    "&lt;a href='//host'>R&amp;D&lt;/a> %&#123;x}"
    """
    escaped = shortened(printable(text)).replace("&", "&amp;").replace("<", "&lt;")
    return escaped.replace("%{", "%&#123;")
