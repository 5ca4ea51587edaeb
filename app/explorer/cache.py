"""All that the explorer keeps between reruns and shares between sessions, with complete keys.

The key of a counter is its file's path, mtime and size; the key of a value is that and the code of the call that
returns it. Nothing is pickled, and old entries are dropped. A call runs in a worker thread that holds the counter's
lock, because hooks sit on the shared module while it runs. A visitor may leave the page meanwhile: the result is kept.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from app.explorer.call import Call, Given
from app.explorer.catalogue import Catalogue, Entry, FileKey, read_catalogue, snapshot_reference
from app.explorer.page import Panel
from models.errors import CountLensError
from models.header import CheckpointInfo

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from models.counter import Counter

MOST_COUNTERS = 48  # a counter takes a megabyte
MOST_RESULTS = 128  # a kept figure takes a megabyte
WORKERS = 8  # more than cores: one that waits for a lock costs nothing
SECONDS_BETWEEN_LOOKS = 0.05  # whether a call has returned
FOLDER_SECONDS = 3.0  # after which folders are read again

R = TypeVar("R")


@dataclass(frozen=True)
class SharedCounter:
    """A counter that sessions share: run it by a `SharedCall`."""

    name: str
    path: Path  # of its checkpoint file
    counter: "Counter"
    reference: str  # what load_counter takes in a notebook
    key: Hashable  # of its file
    lock: Lock  # held while it runs

    @property
    def info(self) -> CheckpointInfo:
        """What its file says of it."""
        assert self.counter.info is not None
        return self.counter.info

    @property
    def architecture(self) -> str:
        """Positional scheme of a transformer, family of a recurrent counter."""
        return self.info.architecture

    @property
    def run(self) -> str:
        """The last part of its name, such as `seed0`."""
        return self.name.rpartition("/")[2]

    @property
    def given(self) -> Given:
        """The counter as an argument of calls."""
        load = f"load_counter({self.reference!r})"
        return Given("counter", self.counter, load, ("from models import load_counter",))

    def call(self, function: Callable[..., R], *arguments: Any, **named: Any) -> "SharedCall[R]":
        """`function(counter, ...)`, kept for all sessions."""
        return SharedCall(self, function, self.given, *arguments, **named)


class SharedCall(Call[R]):
    """A call that runs once for all sessions, while the counter's lock is held; calls that are arguments run before."""

    def __init__(self, subject: SharedCounter, function: Callable[..., R], *arguments: Any, **named: Any) -> None:
        super().__init__(function, *arguments, **named)
        self.subject = subject

    @cached_property
    def value(self) -> R:
        """What the function returns, from the cache if it ran before."""
        key = (self.subject.key, self.code("value"))
        future: Future[R] = _future(*key, _lock=self.subject.lock, _run=self.bound())
        _await(future)
        if future.exception() is not None and not isinstance(future.exception(), CountLensError):
            _future.clear(*key)  # the next visit may try again
        return future.result()


def kept_panel(
    subject: SharedCounter, caption: str, draw: Callable[..., "go.Figure"], probe: Call[Any], *arguments: Any
) -> Panel:
    """As `panel_of`, with a figure that is kept because plotly is slow: for one that stays while others change."""
    result = probe.value
    return Panel(caption, SharedCall(subject, draw, probe, *arguments), result.to_frame, result.verdict.sentence)


@st.cache_resource(show_spinner=False, ttl=FOLDER_SECONDS, max_entries=4)
def catalogue(folders: tuple[Path, ...]) -> Catalogue:
    """The counters below these folders, at most some seconds old."""
    return read_catalogue(folders)


def open_counter(entry: Entry, step: int | None = None) -> SharedCounter:
    """The counter of an entry, or its snapshot of a step."""
    if entry.broken is not None:
        raise CountLensError(f"{entry.name} is broken: {entry.broken}")
    path = entry.path if step is None else entry.snapshots[step]  # both lie in the explorer's folders
    return _open(FileKey.of(path), entry.name, snapshot_reference(entry, path))


def open_copy(subject: SharedCounter) -> SharedCounter:
    """The same counter loaded once more, with a lock of its own, so that long work on it blocks no other page."""
    return open_file(subject, subject.path, subject.reference)


def open_file(subject: SharedCounter, path: Path, reference: str) -> SharedCounter:
    """Another file of the counter's run, with a lock of its own."""
    return _open(FileKey.of(path), subject.name, reference, copy=True)


@st.cache_resource(show_spinner=False, max_entries=MOST_COUNTERS)
def _open(key: FileKey, name: str, reference: str, copy: bool = False) -> SharedCounter:
    from models.checkpoint import load_counter

    return SharedCounter(name, key.path, load_counter(key.path), reference, key, Lock())


@st.cache_resource(show_spinner=False, max_entries=MOST_RESULTS)
def _future(key: Hashable, code: str, _lock: Lock, _run: Callable[[], R]) -> Future[R]:
    def run() -> R:
        with _lock:
            return _run()

    return _workers().submit(run)


def _await(future: Future[Any]) -> None:
    """Waits under a spinner. Each round calls streamlit, which ends the run if the visitor has left the page."""
    wait([future], SECONDS_BETWEEN_LOOKS)
    if future.done():
        return
    with st.spinner("Computing; other pages can be visited meanwhile", show_time=True):
        place = st.empty()
        while not future.done():
            place.empty()
            wait([future], SECONDS_BETWEEN_LOOKS)


@st.cache_resource(show_spinner=False)
def _workers() -> ThreadPoolExecutor:
    import torch

    return ThreadPoolExecutor(WORKERS, "explorer", initializer=torch.set_num_threads, initargs=(1,))
