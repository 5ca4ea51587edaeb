"""Errors that a user can act on: they say what was received, what is allowed, and the way out."""

import difflib
from collections.abc import Iterable

_LONGEST = 200  # characters of a value in a message


class CountLensError(ValueError):
    """A problem that the user can fix. The command line prints its message alone, without a traceback."""


def unknown(kind: str, got: object, allowed: Iterable[str]) -> CountLensError:
    """The error for a name that a registry does not have; it suggests the nearest names and lists all.

    >>> print(unknown("task", "mod_10", ["mod10", "selective"]))
    unknown task 'mod_10': did you mean mod10? All: mod10, selective
    >>> print(unknown("task", 10, ["mod10", "selective"]))
    unknown task 10: All: mod10, selective
    """
    names = list(allowed)
    near = difflib.get_close_matches(got[:_LONGEST].lower(), names, n=3, cutoff=0.5) if isinstance(got, str) else []
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return CountLensError(f"unknown {kind} {shown(got)}: {hint}All: {', '.join(names) or 'none'}")


def shown(value: object) -> str:
    """The value as text for a message: on one line, without control characters, and cut off if it is long.

    >>> shown("a" * 1000)[-7:], shown("two\\nlines")
    ("aa' ...", "'two\\\\nlines'")
    """
    if isinstance(value, str | bytes):
        text = repr(value[:_LONGEST]) + " ..." * (len(value) > _LONGEST)
    else:
        try:
            text = repr(value)
        except (ValueError, RecursionError):  # a number of thousands of digits, or deep nesting
            text = f"a very long {type(value).__name__}"
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return text
