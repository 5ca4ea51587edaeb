"""Progress of a sweep: a live table on a terminal, elsewhere one line per event."""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from app.escape import printable, say
from training.run.interrupt import interrupted_by_sigterm
from training.sweep.engine import Event
from training.sweep.flops import run_flops
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest, RunStatus, last_line, status_of
from training.sweep.units import duration

SECONDS_BETWEEN_DRAWINGS = 1.0


class Board:
    """What the live table shows: which runs are in training, finished or failed, and their numbers on disk."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.running: dict[str, SweepRun] = {}
        self.done = {run.name: status for run, status in manifest.statuses() if status.state == "finished"}
        self.failed: dict[str, str] = {}
        self.sizes = {run.name: run_flops(run.config) for run in manifest.runs}
        self.started = time.perf_counter()
        self.done_before = set(self.done)

    def note(self, event: Event | None) -> None:
        """Takes an event in."""
        if event is None:
            return
        name = event.run.name
        if event.kind == "started":
            self.running[name] = event.run
            return
        self.running.pop(name, None)
        status = status_of(self.manifest.folder(event.run), event.run.config)
        if event.kind == "finished":
            self.done[name] = status
        elif event.kind == "failed":
            self.failed[name] = last_line(event.error or status.error or "")

    def seconds_left(self) -> float | None:
        """The time left, from the work left and the pace since the start; None before there is any progress."""
        progress = sum(self.sizes[name] for name in self.done.keys() - self.done_before)
        left = sum(size for name, size in self.sizes.items() if name not in self.done and name not in self.failed)
        for name, run in self.running.items():
            status = status_of(self.manifest.folder(run), run.config)
            part = self.sizes[name] * status.step / max(1, status.steps)
            progress, left = progress + part, left - part
        elapsed = time.perf_counter() - self.started
        return elapsed * left / progress if progress else None

    def headline(self) -> str:
        """One line: how many runs are done, running, waiting and failed, and the time left."""
        waiting = len(self.manifest.runs) - len(self.done) - len(self.failed) - len(self.running)
        left = self.seconds_left()
        return (
            f"{len(self.done)} of {len(self.manifest.runs)} done, {len(self.running)} running, {waiting} waiting, "
            f"{len(self.failed)} failed, {'time left unknown yet' if left is None else f'about {duration(left)} left'}"
        )

    def table(self) -> Table:
        """The runs in training and those that failed, under the headline."""
        table = Table(title=self.headline(), title_justify="left", title_style="bold", box=None, pad_edge=False)
        for column in ("run", "step", "IND %", "OOD %", "time"):
            table.add_column(column, justify="left" if column == "run" else "right")
        for name, run in self.running.items():
            status = status_of(self.manifest.folder(run), run.config)
            table.add_row(_cell(name), f"{status.step}/{status.steps}", *percents(status), duration(status.seconds))
        for name, error in self.failed.items():
            table.add_row(f"[red]{_cell(name)}[/red]", f"[red]failed: {_cell(error)}[/red]")
        return table


def watch(events: Generator[Event | None, None, None], manifest: Manifest, quiet: bool) -> Board:
    """Shows the events of a sweep until they end, and returns the board. Ctrl-C and SIGTERM end the command."""
    board = Board(manifest)
    try:
        with _open_display(board, quiet) as draw, interrupted_by_sigterm(), closing(events):
            for event in events:
                board.note(event)
                draw(event)
    except KeyboardInterrupt:
        print("stopped; nothing is lost: the same command goes on where it was", file=sys.stderr)
        sys.exit(130)
    return board


@contextmanager
def _open_display(board: Board, quiet: bool) -> Iterator[Callable[[Event | None], None]]:
    """A function that shows an event: in a live table on a terminal, elsewhere as a line."""
    console = Console(stderr=True)
    if not console.is_terminal or quiet:

        def write(event: Event | None) -> None:
            if event is not None and event.kind not in ("started", "busy") and not quiet:
                status = status_of(board.manifest.folder(event.run), event.run.config)
                outcome = f": {board.failed[event.run.name]}" if event.kind == "failed" else scores_of(status)
                say(f"{event.kind} {event.run.name}{outcome}; {board.headline()}", sys.stderr)

        yield write
        return
    with Live(board.table(), console=console, auto_refresh=False) as live:
        last_time = 0.0

        def draw(event: Event | None) -> None:
            nonlocal last_time
            if event is not None or time.perf_counter() - last_time > SECONDS_BETWEEN_DRAWINGS:
                live.update(board.table(), refresh=True)
                last_time = time.perf_counter()

        yield draw
        live.update(board.table(), refresh=True)


def _cell(text: str) -> str:
    """Foreign text as a cell of rich's table shows it; rich would read markup in brackets."""
    return escape(printable(text))


def percents(status: RunStatus) -> tuple[str, str]:
    return ("", "") if status.ind is None else (f"{status.ind:.1f}", f"{status.ood:.1f}")


def scores_of(status: RunStatus) -> str:
    return "" if status.ind is None else f"  IND {status.ind:.1f}  OOD {status.ood:.1f}"
