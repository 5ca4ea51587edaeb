"""A border with planted faults, on which the tests try whether each is noticed."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Literal

import numpy as np

from models.errors import CountLensError
from tests.fuzz.harness import Border, Case, DifferentError

EXTRA = 600 * 10**6  # bytes
FAULTS = ("none", "refusal", "foreign", "different", "allocation", "death", "hang")  # by the number of the case


def prepare(folder: Path) -> None:
    (folder / "source.txt").write_text("sound")


def open_border(folder: Path) -> Case:
    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        fault = FAULTS[int(place.name.rpartition("-")[2]) % len(FAULTS)]
        (place / "input.txt").write_text(f"{(folder / 'source.txt').read_text()} {fault} {chance.random()}")
        if fault == "refusal":
            raise CountLensError("x=1: must be 2")
        if fault == "foreign":
            raise KeyError("x")
        if fault == "different":
            raise DifferentError("other files")
        if fault == "allocation":
            np.ones(EXTRA // 8)  # written to: memory that is only asked for costs nothing
        if fault == "death":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        return "accepted"

    return case


BORDERS = {"planted": Border(len(FAULTS), prepare, open_border)}
