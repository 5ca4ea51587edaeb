"""Stopping between two steps, when somebody asks for it (Ctrl-C) or a scheduler does (SIGTERM)."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """A function that tells whether to stop. The first signal only asks; a second one interrupts at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Inside, a scheduler's SIGTERM is what Ctrl-C is: a KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
