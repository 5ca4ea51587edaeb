"""What every probe returns: a frozen dataclass of numbers with a verdict, a tidy table and a JSON form."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from models.counter import Counter
from models.errors import CountLensError
from probes.stats import Interval
from training.tasks import Task, task_of_checkpoint

PAPER_LABELS = {True: "as the paper says", False: "not as the paper says", None: "no claim to compare with"}


class NotApplicable(CountLensError):
    """This probe makes no sense for this counter; the message says why. A report skips it with the reason."""


@dataclass(frozen=True)
class Verdict:
    """One sentence that the numbers of a result support, and which numbers would support another one."""

    sentence: str
    would_change: str
    agrees: bool | None = None  # with the paper's claim; None if the paper makes none


ANYWHERE, SHARE, PERCENT = (-math.inf, math.inf), (0.0, 1.0), (0.0, 100.0)  # limits of a headline's number


@dataclass(frozen=True)
class Headline:
    """A verdict as a label and a number, which can be compared between the seeds of a cell.

    Seeds agree if their labels are equal: a label names one of a few outcomes and contains no number.
    """

    label: str
    measure: str = ""  # what the number measures; "" if there is none
    value: float = math.nan
    low: float = math.nan  # 95 % interval within this one counter, NaN if the probe gives none
    high: float = math.nan
    limits: tuple[float, float] = ANYWHERE  # the range of possible numbers

    @classmethod
    def of(cls, label: str, measure: str, number: Interval, limits: tuple[float, float] = ANYWHERE) -> "Headline":
        """The headline with this label and the number of an interval."""
        return cls(label, measure, number.value, number.low, number.high, limits)


class Result(ABC):
    """Base of the frozen dataclasses that probes return."""

    @property
    @abstractmethod
    def verdict(self) -> Verdict:
        """The sentence that the numbers support, and whether it agrees with the paper."""

    @property
    def headline(self) -> Headline:
        """The verdict as a label and a number. By default the label says whether the result agrees with the paper."""
        return Headline(PAPER_LABELS[self.verdict.agrees])

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The numbers as a tidy table, one observation per line."""

    def to_dict(self) -> dict[str, Any]:
        """The fields and the verdict as plain JSON values."""
        assert is_dataclass(self)
        values = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return values | {"verdict": plain(self.verdict)}


def plain(value: Any) -> Any:
    """The same value in JSON's types: arrays become lists, floats keep nine digits, NaN becomes None.

    >>> plain({"score": np.array([0.1 + 0.2, np.nan])})
    {'score': [0.3, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if np.isfinite(value) else None
    return value


def task_of_counter(counter: Counter) -> tuple[Task, str]:
    """The task and position policy that a counter was trained on."""
    info = counter.info
    task = None if info is None else task_of_checkpoint(info)
    if info is None or task is None or info.policy is None:
        raise NotApplicable("this counter does not say what it was trained on: load it from a training run")
    return task, info.policy
