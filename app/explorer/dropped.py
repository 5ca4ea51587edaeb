"""Counters that a visitor drops on the Zoo: checked as every other file, shown to this visitor alone, then gone.

They lie in a folder of the session's own, which goes when the session does.
"""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import streamlit as st

from app.escape import shortened
from app.explorer.catalogue import Catalogue, read_catalogue
from models.errors import CountLensError
from models.find import CHECKPOINT

MAX_MB = 32  # of one file; the config's maxUploadSize is the same
MOST_FILES = 8  # per visit
LONGEST_NAME = 60
FOLDER = "dropped"  # what their names begin with
STATE = "dropped folder"  # key in the session's state


class DroppedFile(Protocol):
    """What a browser sends."""

    name: str
    size: int

    def getbuffer(self) -> memoryview: ...


def with_dropped(catalogue: Catalogue) -> Catalogue:
    """The catalogue with what this visitor has dropped."""
    folder = st.session_state.get(STATE)
    if folder is None:
        return catalogue
    below = Path(folder.name).resolve() / FOLDER
    own = {f"{FOLDER}/{name}": entry for name, entry in read_catalogue((below,)).entries.items()}
    renamed = {name: type(entry)(name, entry.path, name, entry.info, entry.broken) for name, entry in own.items()}
    return Catalogue((*catalogue.folders, below), catalogue.entries | renamed)


def keep(file: DroppedFile) -> str:
    """Writes a file to the visit's folder and returns the counter's name. The catalogue says whether it is sound."""
    if file.size > MAX_MB * 2**20:
        raise CountLensError(
            f"{shortened(file.name, LONGEST_NAME)} is larger than {MAX_MB} MB: start the explorer with "
            "`countlens explore --folder FOLDER` to look at larger ones"
        )
    if STATE not in st.session_state:
        st.session_state[STATE] = TemporaryDirectory(prefix="countlens-", ignore_cleanup_errors=True)
    below = Path(st.session_state[STATE].name).resolve() / FOLDER
    name = safe_name(file.name)
    if not (below / name).is_dir() and below.is_dir() and len(list(below.iterdir())) >= MOST_FILES:
        raise CountLensError(f"there are {MOST_FILES} dropped counters already: forget them first")
    (below / name).mkdir(parents=True, exist_ok=True)
    (below / name / CHECKPOINT).write_bytes(file.getbuffer())
    return f"{FOLDER}/{name}"


def forget() -> None:
    """Removes what was dropped."""
    folder = st.session_state.pop(STATE, None)
    if folder is not None:
        folder.cleanup()


def safe_name(name: str) -> str:
    """The name of a file as that of a folder: letters, digits and - _ . alone, and never a way out.

    >>> safe_name("my counter.safetensors"), safe_name("../../etc/passwd"), safe_name("...")
    ('my-counter', 'etc-passwd', 'counter')
    """
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", name.removesuffix(".safetensors"))
    return re.sub(r"\.{2,}", "", stem).strip("-.")[:LONGEST_NAME] or "counter"
