"""Errors that a user can act on: what was got, what is allowed, and the way out."""

import difflib
from collections.abc import Iterable


class CountLensError(ValueError):
    """Something the user can mend. The command line prints its message alone, without a traceback."""


def unknown(kind: str, got: str, allowed: Iterable[str]) -> CountLensError:
    """The error for a name that is in no registry, with the nearest names first.

    >>> print(unknown("task", "mod_10", ["mod10", "selective"]))
    unknown task 'mod_10': did you mean mod10? All: mod10, selective
    """
    names = list(allowed)
    near = difflib.get_close_matches(got.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return CountLensError(f"unknown {kind} {got!r}: {hint}All: {', '.join(names) or 'none'}")
