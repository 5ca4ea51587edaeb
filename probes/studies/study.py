"""What a study is: a protocol that is written before its runs, a grid, what is measured on each run, and an analysis.

The protocol is data. Each of its claims names a number, a threshold and the outcome that refutes the claim. The
analysis computes these numbers from the table of runs alone, so that the verdict is a pure function of that table.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from models.errors import CountLensError
from probes.result import plain
from probes.stats import Interval
from training.config import RunConfig
from training.run.folder import RunFolder
from training.sweep.grid import Cell, SweepRun, expand

Value = float | str | None  # of a cell in the table of runs; None where the run has nothing to measure
Row = dict[str, Value]  # a line of that table, by column
Status = Literal["supported", "refuted", "undecided"]
FIRST_SEED = 1000  # of every study: seeds from here on were not used to choose any recipe


@dataclass(frozen=True)
class StudyClaim:
    """A number that should lie above or below a threshold, and what would refute that; fixed before the runs."""

    name: str
    statement: str
    side: Literal["above", "below"]
    threshold: int | float
    refuted_by: str
    is_primary: bool = True  # the verdict rests on primary claims; the others are reported beside them
    unit: str = ""  # of the number, as "points"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its number as measured, with the interval over seeds; None if the runs do not give the number."""

    claim: StudyClaim
    estimate: Interval | None

    @property
    def status(self) -> Status:
        """Supported if the whole interval lies on the claimed side of the threshold, refuted if on the other side."""
        if self.estimate is None:
            return "undecided"
        claim = self.claim
        is_above, is_below = self.estimate.low > claim.threshold, self.estimate.high < claim.threshold
        if claim.side == "below":
            is_above, is_below = is_below, is_above
        return "supported" if is_above else "refuted" if is_below else "undecided"


def overall_status(claims: tuple[JudgedClaim, ...]) -> Status:
    """Refuted if a primary claim is, supported if all are, undecided otherwise."""
    statuses = {judged.status for judged in claims if judged.claim.is_primary}
    if "refuted" in statuses:
        return "refuted"
    return "supported" if statuses == {"supported"} else "undecided"


@dataclass(frozen=True)
class Protocol:
    """What a study asks, does and expects, as it was written before the first run."""

    question: str
    background: str  # what the paper, pilots and related work say
    hypothesis: str
    grid: str  # the runs, in words
    measured: dict[str, str]  # each column of the table of runs but `run` and `seed`, and its meaning
    analysis: str
    claims: tuple[StudyClaim, ...]
    left_out: str  # what was cut, and why

    @property
    def digest(self) -> str:
        """A fingerprint of all fields. A result stores that of its protocol."""
        return hashlib.sha256(json.dumps(plain(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Series:
    """Points of a picture: at each x a number with its interval."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[Interval, ...]
    look: Literal["line", "dashed", "points"] = "line"
    names: tuple[str, ...] = ()  # of the points, if each is a run

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or len(self.names) not in (0, len(self.x)):
            raise CountLensError(
                f"a series has {len(self.x)} x, {len(self.y)} numbers and {len(self.names)} names: give a number for "
                "each x, and as many names or none"
            )


@dataclass(frozen=True)
class Panel:
    """A picture of a study, as data; `app.figures.studies` draws it."""

    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    categories: bool = False  # x are names, in the order in which they first occur


@dataclass(frozen=True)
class Study:
    """A question over many runs, and how it is answered."""

    number: int  # of its page in docs/findings
    title: str
    protocol: Protocol
    cells: tuple[Cell, ...]  # of the grid, as in a grid file
    quick_cells: tuple[Cell, ...]  # the headline's runs with fewer seeds: they take minutes
    factors: Callable[[RunConfig], Row]  # the columns that come from a run's settings
    measure: Callable[[RunFolder], Row]  # the columns that are measured on a finished run
    estimate: Callable[[pd.DataFrame], dict[str, Interval | None]]  # the number of every claim, from the table alone
    draw: Callable[[pd.DataFrame], tuple[Panel, ...]]
    version: int = 1  # of `measure`: runs that another version measured are measured again

    def runs(self, quick: bool = False) -> list[SweepRun]:
        """The runs of the grid, seed by seed, so that an unfinished study has all runs of its first seeds."""
        runs = expand([dict(cell) for cell in (self.quick_cells if quick else self.cells)])
        return sorted(runs, key=lambda run: run.config.seed)

    def judge(self, table: pd.DataFrame) -> tuple[JudgedClaim, ...]:
        """Every claim of the protocol with its number, from the table of runs."""
        estimates = self.estimate(table)
        return tuple(JudgedClaim(claim, estimates[claim.name]) for claim in self.protocol.claims)


def seeds(number: int) -> list[int]:
    """The first seeds of studies, as many as this."""
    return list(range(FIRST_SEED, FIRST_SEED + number))


def table_of(rows: Any) -> pd.DataFrame:
    """The table of runs as a frame; missing numbers become NaN."""
    return pd.DataFrame(list(rows)).infer_objects()
