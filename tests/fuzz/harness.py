"""Runs the cases of the fuzz test in worker processes and watches them: none may hang, take much memory, or die.

A border is a place where values come in from outside. A case of it is one hostile input. Everything that a case does
follows from the seed, the name of the border and the number of the case, so that a single case can be done again.
"""

import contextlib
import json
import os
import queue
import random
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 5.0  # per case
MOST_PATIENCE = 12  # at most this many times as long, however busy the machine is
MOST_BYTES = 500 * 10**6  # that a case may take beyond the size of its files
MB = 10**6

Verdict = Literal["accepted", "refused", "foreign", "different", "hang"]
WRONG: tuple[Verdict, ...] = ("foreign", "different", "hang")
Case = Callable[[random.Random, Path], Literal["accepted", "refused"]]


class DifferentError(AssertionError):
    """An input was accepted with a wrong result."""


@dataclass(frozen=True)
class Border:
    """A place where values come in from outside."""

    cases: int  # in a full run
    prepare: Callable[[Path], None]  # writes the files that the cases start from into a folder
    # From that folder, the function that does one case: in a folder of its own, with randomness from its argument. A
    # CountLensError is a refusal, a DifferentError an input that was accepted wrongly, any other exception is foreign.
    open: Callable[[Path], Case]


@dataclass(frozen=True)
class Job:
    """A case to do."""

    border: str
    case: int


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    job: Job
    verdict: Verdict
    text: str  # why it was refused, or what went wrong
    extra: int  # bytes of memory beyond what the worker had before and the size of the case's files
    folder: Path  # of the case's files; kept if something is wrong

    @property
    def is_wrong(self) -> bool:
        return self.verdict in WRONG or self.extra > MOST_BYTES


@dataclass
class Tally:
    """The outcomes of a border."""

    verdicts: Counter[str] = field(default_factory=Counter)
    largest: int = 0  # extra bytes of memory of a case

    def add(self, outcome: Outcome) -> None:
        self.verdicts[outcome.verdict] += 1
        self.largest = max(self.largest, outcome.extra)


def chance_of(seed: int, job: Job) -> random.Random:
    """The source of all randomness of a case."""
    return random.Random(f"{seed} {job.border} {job.case}")


class DeadWorkerError(Exception):
    """The process of a worker has ended on its own."""


class Worker:
    """A process that does cases, one after the other; it is started again after it was killed or died."""

    def __init__(self, registry: str, folder: Path, seed: int) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "tests.fuzz.worker", registry, str(folder), str(seed)]
        self._log = folder / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self, border: str) -> None:
        """Writes the files that the cases of a border start from."""
        self._insist({"prepare": border})

    def do(self, job: Job) -> Outcome:
        """Does a case. One that takes too long is tried once more, in a new process: the machine may be busy."""
        place = self.folder / f"{job.border}-{job.case}"
        for _ in range(2):
            self._insist({"open": job.border})
            try:
                reply = self._ask({"border": job.border, "case": job.case, "place": str(place)}, MOST_SECONDS)
                return Outcome(job, reply["verdict"], reply["text"], reply["extra"], place)
            except DeadWorkerError as error:
                return Outcome(job, "foreign", str(error), 0, place)
            except TimeoutError:
                self.stop()
        return Outcome(job, "hang", f"not done after {MOST_SECONDS:g} seconds, twice", 0, place)

    def stop(self) -> None:
        """Kills the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _insist(self, message: dict[str, Any]) -> None:
        """Sends a message that must succeed, however long it takes."""
        reply = self._ask(message, None)
        if reply["verdict"] != "accepted":
            raise RuntimeError(f"{message}: {reply['text']}")

    def _ask(self, message: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        """Sends a message and returns the reply. Raises TimeoutError if there is none within these seconds."""
        if self._process is None:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, bufsize=0
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            _await_reply(self._process, seconds)
            return _read_line(self._process.stdout)
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            self.stop()
            words = self._log.read_text(errors="replace")[-3000:]
            raise DeadWorkerError(f"the process ended with code {code}: {words}") from None


def _await_reply(process: subprocess.Popen[bytes], seconds: float | None) -> None:
    """Waits until the process replies. Raises TimeoutError if it would take longer even with a core to itself.

    The time that its threads wait for a core does not count: on a busy machine it would be most of the time.
    """
    began, waits = time.monotonic(), _seconds_in_queue(process.pid)
    left = seconds
    assert process.stdout is not None
    while not select.select([process.stdout], [], [], left)[0]:
        assert seconds is not None
        elapsed = time.monotonic() - began
        left = seconds - (elapsed - (_seconds_in_queue(process.pid) - waits))
        if left < 0.1 or elapsed > MOST_PATIENCE * seconds:
            raise TimeoutError


def _seconds_in_queue(process: int) -> float:
    """The seconds that the threads of a process have waited for a core; 0 if the system does not say."""
    waits = 0.0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            waits += int(path.read_text().split()[1]) / 1e9
    return waits


def _read_line(pipe: IO[bytes]) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(pipe.fileno(), 2**16)
        if not part:
            raise EOFError
        line += part
    reply: dict[str, Any] = json.loads(line)
    return reply


def do_cases(
    jobs: Sequence[Job], folder: Path, seed: int, workers: int, registry: str = "tests.fuzz.borders:BORDERS"
) -> Iterator[Outcome]:
    """Runs the cases in `workers` processes and yields their outcomes, in any order."""
    waiting: queue.Queue[Job] = queue.Queue()
    done: queue.Queue[Outcome | BaseException | None] = queue.Queue()
    for job in jobs:
        waiting.put(job)
    pool = [Worker(registry, _new_folder(folder / f"worker{number}"), seed) for number in range(workers)]
    borders = sorted({job.border for job in jobs})
    (folder / "sources").mkdir(exist_ok=True)

    def work(worker: Worker) -> None:
        try:
            while True:
                done.put(worker.do(waiting.get_nowait()))
        except queue.Empty:
            done.put(None)
        except BaseException as error:
            done.put(error)
        finally:
            worker.stop()

    for border in borders:
        if not (folder / "sources" / border).exists():
            pool[0].prepare(border)
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in pool]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is None:
                running -= 1
            else:
                yield outcome
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for thread in threads:
            thread.join()


def _new_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def load_registry(reference: str) -> dict[str, Border]:
    """The borders of a `module:name`."""
    module, name = reference.split(":")
    borders: dict[str, Border] = getattr(import_module(module), name)
    return borders
