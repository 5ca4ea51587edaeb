"""Stopping a run between two steps, when a user (Ctrl-C) or a scheduler (SIGTERM) asks for it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether to stop. A first signal requests a stop; a second interrupts at once."""
    request = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.is_set():
            raise KeyboardInterrupt
        request.set()

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield request.is_set
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Within the block, a SIGTERM from a scheduler raises KeyboardInterrupt, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
