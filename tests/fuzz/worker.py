"""The process that does the cases: `python -m tests.fuzz.worker REGISTRY FOLDER SEED`, messages on stdin.

Each message and each reply is a line of JSON. What a case prints goes nowhere.
"""

import contextlib
import gc
import io
import json
import os
import resource
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from models.errors import CountLensError
from tests.fuzz.harness import MOST_BYTES, Border, Case, DifferentError, Job, chance_of, load_registry

# A case that asks for much more memory than is allowed gets an error instead of taking the machine's.
ADDRESS_SPACE = 8 * 2**30
IS_LINUX = sys.platform == "linux"


class Desk:
    """Answers the messages to this process, and keeps the borders that it has opened."""

    def __init__(self, borders: dict[str, Border], folder: Path, seed: int) -> None:
        self.borders, self.sources, self.seed = borders, folder.parent / "sources", seed
        self.opened: dict[str, Case] = {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "prepare" in message:
            border = message["prepare"]
            (self.sources / border).mkdir(parents=True)
            self.borders[border].prepare(self.sources / border)
        elif "open" in message:
            if message["open"] not in self.opened:
                self.opened[message["open"]] = self.borders[message["open"]].open(self.sources / message["open"])
                gc.collect()
                gc.freeze()  # streamlit looks for garbage after every page: through all of torch, without this
        else:
            return self.do(Job(message["border"], message["case"]), Path(message["place"]))
        return {"verdict": "accepted", "text": ""}

    def do(self, job: Job, place: Path) -> dict[str, Any]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        before = start_measurement()
        verdict, text = try_case(self.opened[job.border], self.seed, job, place)
        extra = max(0, peak_memory() - before - disk_usage(place))
        if verdict in ("accepted", "refused") and extra <= MOST_BYTES:
            shutil.rmtree(place)
        return {"verdict": verdict, "text": text, "extra": extra}


def try_case(case: Case, seed: int, job: Job, place: Path) -> tuple[str, str]:
    """The verdict on a case, and why."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return case(chance_of(seed, job), place), ""
    except CountLensError as error:
        return "refused", str(error)
    except DifferentError as error:
        return "different", str(error)
    except BaseException:
        return "foreign", traceback.format_exc()[-10_000:]


def start_measurement() -> int:
    """The current memory of this process in bytes, and the start of measuring the peak of a case.

    The kernel keeps the largest resident memory of a process (VmHWM), in whatever library it was taken, and Linux sets
    it back on request. Python's tracemalloc would not see torch's memory. Elsewhere the largest of the whole process
    has to do: a case is then counted only where it takes more than all before it.
    """
    if not IS_LINUX:
        return peak_memory()
    Path("/proc/self/clear_refs").write_text("5")
    used = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return _status("VmRSS")


def peak_memory() -> int:
    """The largest resident memory since `start_measurement`, in bytes."""
    return _status("VmHWM") if IS_LINUX else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def disk_usage(folder: Path) -> int:
    """The bytes that the files of a folder take on the disk, which for a file with holes is less than its size."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def main(registry: str, folder: str, seed: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    desk = Desk(load_registry(registry), Path(folder), int(seed))
    for line in sys.stdin:
        try:
            reply = desk.answer(json.loads(line))
        except Exception:
            reply = {"verdict": "foreign", "text": traceback.format_exc()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
