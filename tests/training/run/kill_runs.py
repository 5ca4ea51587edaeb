"""Trains a tiny run in child processes and ends them: at each file operation, at random moments, or two at a time.

A script of its own, because it forks: torch is imported once for hundreds of children, and a process in which
autograd has run must not be forked. `kill_runs.py FOLDER PLAN` trains FOLDER/whole undisturbed, then does each entry of
PLAN in FOLDER/0, FOLDER/1, ... and prints a JSON list of what happened. The test compares the run folders. Entries:

    ["operations", SIGNAL, FIRST, STRIDE]   ends a run at file operation FIRST, FIRST + STRIDE, ..., and resumes it
    ["random", KILLS, SEED]                 ends runs by SIGKILL at random moments, and resumes them
    ["starters", ROUNDS]                    starts a new run twice at the same moment
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from training.config import ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.sweep.engine import train_run

CODES = {"finished": 0, "failed": 1, "busy": 2}
INTERRUPTED = 130
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.utime"}  # of sys.addaudithook, with a path
CONFIG = resolve(
    TrainConfig(
        seed=1,
        data=TaskOptions(task="helper", train_length=4, ood_length=8),
        model=ModelOptions(position="sine", n_layers=1, d_model=8, n_heads=2),
        optimiser=OptimiserOptions(steps=5, warmup_steps=1, batch_size=4, lr=0.03),
        record=RecordOptions(eval_every=2, eval_rows=8, snapshots=2),
    )
)


class FileOperations:
    """Counts the file operations of a run, halves of writes included, and acts before the one with a given number."""

    def __init__(self, folder: Path, number: int, act: Callable[[], None]) -> None:
        self.folder, self.number, self.act, self.count = str(folder), number, act, 0
        sys.addaudithook(self._listen)
        real_fsync, real_write = os.fsync, Path.write_bytes

        def fsync(file: Any) -> None:
            self._tick()
            real_fsync(file)

        def write_bytes(path: Path, content: bytes) -> int:
            real_write(path, content[: len(content) // 2])
            self._tick()
            return real_write(path, content)

        os.fsync = fsync
        Path.write_bytes = write_bytes  # type: ignore[method-assign, assignment]

    def _listen(self, event: str, args: tuple[Any, ...]) -> None:
        concerns_run = event in EVENTS and any(str(argument).startswith(self.folder) for argument in args)
        if concerns_run or event == "fcntl.flock":
            self._tick()

    def _tick(self) -> None:
        self.count += 1
        if self.count == self.number:
            self.act()


def start(path: Path, prepare: Callable[[], Any] = lambda: None, finish: Callable[[Any], None] = lambda _: None) -> int:
    """Starts training in a child process; its exit code tells the outcome."""
    child = os.fork()
    if child:
        return child
    code = 3
    # A shell that starts a job in the background lets it ignore SIGINT; the signals are to be heard here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        prepared = prepare()
        outcome = train_run(path, CONFIG)
        code = CODES[outcome.kind]
        if outcome.error is not None:
            print(outcome.error, file=sys.stderr, flush=True)
        finish(prepared)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int) -> int:
    """The exit code of a child, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train_whole(path: Path) -> tuple[int, float]:
    """Trains a run undisturbed; the number of its file operations and the seconds that it took."""
    number = path.with_name("operations.txt")

    def note(operations: FileOperations) -> None:
        with number.open("w") as file:
            file.write(str(operations.count))

    began = time.monotonic()
    code = wait(start(path, lambda: FileOperations(path, -1, lambda: None), note))
    assert code == 0, code
    return int(number.read_text()), time.monotonic() - began


def end_at_operations(folder: Path, operations: range, number: int) -> dict[str, Any]:
    """Ends a run by a signal before each of these file operations; how each ended and how its resumption did."""
    endings, resumed = [], []
    for operation in operations:
        path = folder / f"run{operation}"

        def plant(path: Path = path, operation: int = operation) -> FileOperations:
            return FileOperations(path, operation, lambda: os.kill(os.getpid(), number))

        endings.append(wait(start(path, plant)))
        resumed.append(wait(start(path)))
    return {"endings": endings, "resumed": resumed}


def kill_at_random(folder: Path, seconds: float, kills: int, seed: int) -> dict[str, Any]:
    """Kills runs, which take so many seconds, at random moments, each several times, until there were enough kills."""
    chance = random.Random(seed)
    hits, resumed = 0, []
    while hits < kills:
        path = folder / f"run{len(resumed)}"
        for _ in range(min(chance.randint(1, 8), kills - hits)):
            child = start(path)
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            if wait(child) != -signal.SIGKILL:
                break  # it had finished
            hits += 1
        resumed.append(wait(start(path)))
    return {"kills": hits, "resumed": resumed}


def start_twice(folder: Path, rounds: int) -> dict[str, Any]:
    """Starts two processes on one new run at the same moment, again and again; how they ended."""
    endings = []
    for index in range(rounds):
        gate, opener = os.pipe()

        def wait_at_gate(gate: int = gate, opener: int = opener) -> None:
            os.close(opener)
            os.read(gate, 1)

        children = [start(folder / f"run{index}", wait_at_gate) for _ in range(2)]
        os.close(opener)  # both go on now
        endings.append(sorted(map(wait, children)))
        os.close(gate)
    return {"endings": endings}


def carry_out(folder: Path, plan: list[list[Any]]) -> Iterator[dict[str, Any]]:
    """Does each entry of the plan in a folder of its own."""
    operations, seconds = train_whole(folder / "whole")
    for index, (kind, *values) in enumerate(plan):
        place = folder / str(index)
        if kind == "operations":
            number, first, stride = values
            report = end_at_operations(place, range(first, operations + 1, stride), number)
        elif kind == "random":
            report = kill_at_random(place, seconds, *values)
        else:
            report = start_twice(place, *values)
        yield {"operations": operations, **report}


def import_everything() -> None:
    """Does what a run does, but for a backward pass: so that modules are imported here and not in every child."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(RunFolder.create(Path(folder) / "run", CONFIG))
        trainer.record(0.0, trainer.score())
        trainer.parts.optimiser.zero_grad()
        trainer.parts.optimiser.step()  # without gradients it changes nothing


if __name__ == "__main__":
    torch.set_num_threads(1)
    import_everything()
    print(json.dumps(list(carry_out(Path(sys.argv[1]), json.loads(sys.argv[2])))))
