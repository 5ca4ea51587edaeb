"""How a sweep goes, while it goes: a live table on a terminal, a line an event elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from app.escape import printable, say
from training.sweep.engine import Event
from training.sweep.flops import run_flops
from training.sweep.grid import SweepRun
from training.sweep.manifest import Manifest, RunStatus, last_line, status_of
from training.sweep.units import duration

SECONDS_BETWEEN_DRAWINGS = 1.0


class Board:
    """What the live table shows: numbers from the run folders, and which runs are being trained right now."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.running: dict[str, SweepRun] = {}
        self.done = {run.name: status for run, status in manifest.statuses() if status.state == "finished"}
        self.failed: dict[str, str] = {}
        self.sizes = {run.name: run_flops(run.config) for run in manifest.runs}
        self.started = time.perf_counter()
        self.done_before = set(self.done)

    def note(self, event: Event | None) -> None:
        """Keeps up with what happened."""
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
        """By the work that is left and the pace since the start; None before anything was measured."""
        progress = sum(self.sizes[name] for name in self.done.keys() - self.done_before)
        left = sum(size for name, size in self.sizes.items() if name not in self.done and name not in self.failed)
        for name, run in self.running.items():
            status = status_of(self.manifest.folder(run), run.config)
            part = self.sizes[name] * status.step / max(1, status.steps)
            progress, left = progress + part, left - part
        elapsed = time.perf_counter() - self.started
        return elapsed * left / progress if progress else None

    def headline(self) -> str:
        """Done, running, failed, waiting, time left: one line."""
        waiting = len(self.manifest.runs) - len(self.done) - len(self.failed) - len(self.running)
        left = self.seconds_left()
        return (
            f"{len(self.done)} of {len(self.manifest.runs)} done, {len(self.running)} running, {waiting} waiting, "
            f"{len(self.failed)} failed, {'time left unknown yet' if left is None else f'about {duration(left)} left'}"
        )

    def table(self) -> Table:
        """The live table: what runs now, what failed, and the headline."""
        table = Table(title=self.headline(), title_justify="left", title_style="bold", box=None, pad_edge=False)
        for column in ("run", "step", "IND %", "OOD %", "time"):
            table.add_column(column, justify="left" if column == "run" else "right")
        for name, run in self.running.items():
            status = status_of(self.manifest.folder(run), run.config)
            table.add_row(_cell(name), f"{status.step}/{status.steps}", *percents(status), duration(status.seconds))
        for name, error in self.failed.items():
            table.add_row(f"[red]{_cell(name)}[/red]", f"[red]failed: {_cell(error)}[/red]")
        return table


@contextmanager
def shown(board: Board, quiet: bool) -> Iterator[Callable[[Event | None], None]]:
    """A function that draws: a live table on a terminal, a line an event elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal or quiet:

        def write(event: Event | None) -> None:
            if event is not None and event.kind not in ("started", "busy") and not quiet:
                status = status_of(board.manifest.folder(event.run), event.run.config)
                why = f": {board.failed[event.run.name]}" if event.kind == "failed" else scores_of(status)
                say(f"{event.kind} {event.run.name}{why}; {board.headline()}", sys.stderr)

        yield write
        return
    with Live(board.table(), console=console, auto_refresh=False) as live:
        drawn = 0.0

        def draw(event: Event | None) -> None:
            nonlocal drawn
            if event is not None or time.perf_counter() - drawn > SECONDS_BETWEEN_DRAWINGS:
                live.update(board.table(), refresh=True)
                drawn = time.perf_counter()

        yield draw
        live.update(board.table(), refresh=True)


def _cell(text: str) -> str:
    """Foreign text for a cell of rich's table, which reads markup in brackets."""
    return escape(printable(text))


def percents(status: RunStatus) -> tuple[str, str]:
    return ("", "") if status.ind is None else (f"{status.ind:.1f}", f"{status.ood:.1f}")


def scores_of(status: RunStatus) -> str:
    return "" if status.ind is None else f"  IND {status.ind:.1f}  OOD {status.ood:.1f}"
