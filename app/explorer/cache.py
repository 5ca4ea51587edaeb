"""All that the explorer keeps between reruns and shares between sessions, in one place with complete keys.

A counter is kept by its file's path, mtime and size; a result by that, its function and every parameter. Nothing is
pickled, and old entries go. A function runs in a thread of its own that holds the counter's lock, because hooks sit
on the shared module while it runs; the page that waits for it can be left at any time, and finds it done on return.
"""

import gc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from app.explorer.catalogue import Catalogue, Entry, FileKey, read_catalogue, snapshot_reference
from models.errors import CountLensError
from models.header import CheckpointInfo

if TYPE_CHECKING:
    from models.counter import Counter

MOST_COUNTERS = 24
MOST_RESULTS = 128  # a kept figure takes a megabyte
WORKERS = 8  # more than cores: one that waits for a lock costs nothing
SECONDS_BETWEEN_LOOKS = 0.05  # at work that goes on
SECONDS_OF_FIRST_PAGE = 3.0
FOLDER_SECONDS = 3.0  # after which folders are looked at again

R = TypeVar("R")


@dataclass(frozen=True)
class Subject:
    """A counter under examination, shared between sessions: go through `compute` to run it."""

    name: str
    path: Path  # of its checkpoint file
    counter: "Counter"
    reference: str  # what load_counter takes in a notebook
    key: FileKey
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


@st.cache_resource(show_spinner=False, ttl=FOLDER_SECONDS, max_entries=4)
def catalogue(folders: tuple[Path, ...]) -> Catalogue:
    """The counters below these folders, as of a moment ago."""
    return read_catalogue(folders)


def open_subject(entry: Entry, step: int | None = None) -> Subject:
    """The counter of an entry, or its snapshot of a step."""
    if entry.broken is not None:
        raise CountLensError(f"{entry.name} is broken: {entry.broken}")
    path = entry.path if step is None else entry.snapshots[step]  # both lie in the explorer's folders
    return _subject(FileKey.of(path), entry.name, snapshot_reference(entry, path))


@st.cache_resource(show_spinner=False, max_entries=MOST_COUNTERS)
def _subject(key: FileKey, name: str, reference: str) -> Subject:
    from models.checkpoint import load_counter

    return Subject(name, key.path, load_counter(key.path), reference, key, Lock())


def compute(subject: Subject, function: Callable[..., R], **parameters: Any) -> R:
    """`function(subject.counter, **parameters)`, from the cache where it has been asked before.

    The function is one that a module defines, so that its name says which it is. Parameters are plain values.
    """
    if "<" in function.__qualname__:
        raise TypeError(f"{function.__qualname__} has no name of its own: define it in a module")
    name = f"{function.__module__}.{function.__qualname__}"
    key = (subject.key, name, tuple(sorted(parameters.items())))
    future: Future[R] = _future(*key, _subject=subject, _function=function)
    _await(future)
    if future.exception() is not None and not isinstance(future.exception(), CountLensError):
        _future.clear(*key)  # it may go better the next time
    return future.result()


@st.cache_resource(show_spinner=False, max_entries=MOST_RESULTS)
def _future(
    key: FileKey, name: str, parameters: tuple[tuple[str, Any], ...], _subject: Subject, _function: Callable[..., R]
) -> Future[R]:
    def run() -> R:
        with _subject.lock:
            return _function(_subject.counter, **dict(parameters))

    return _workers().submit(run)


def _await(future: Future[Any]) -> None:
    """Waits, and shows that it does. Every look is a call into streamlit, which ends the run if its page was left."""
    wait([future], SECONDS_BETWEEN_LOOKS)
    if future.done():
        return
    with st.spinner("Computing; other pages can be visited meanwhile", show_time=True):
        beat = st.empty()
        while not future.done():
            beat.empty()
            wait([future], SECONDS_BETWEEN_LOOKS)


@st.cache_resource(show_spinner=False)
def _workers() -> ThreadPoolExecutor:
    import torch

    return ThreadPoolExecutor(WORKERS, "explorer", initializer=torch.set_num_threads, initargs=(1,))


@st.cache_resource(show_spinner=False)
def warm_up() -> None:
    """Imports what the pages need while the first one is being read; a while later, or it would be drawn late."""
    timer = Timer(SECONDS_OF_FIRST_PAGE, _import_slow_things)
    timer.daemon = True
    timer.start()


def _import_slow_things() -> None:
    import_module("probes.registry")
    # Streamlit collects garbage after every run, and would look through all of torch each time: a third of a second.
    gc.collect()
    gc.freeze()
