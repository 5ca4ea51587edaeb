"""What a study is: a protocol that is written before its runs, a grid, what is measured on each run, and an analysis.

The protocol is data. Its claims each name a number, a threshold and the outcome that refutes them; the analysis only
fills in the numbers, from the table of runs alone. So a verdict is a pure function of that table.
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

Value = float | str | None  # of a cell in the table of runs; None where there is nothing to measure
Row = dict[str, Value]  # a line of that table
Status = Literal["supported", "refuted", "undecided"]
FIRST_SEED = 1000  # of studies: no recipe was chosen on seeds from here on


@dataclass(frozen=True)
class StudyClaim:
    """A number that the hypothesis says is above or below a threshold, and what would refute it; fixed beforehand."""

    name: str
    statement: str
    side: Literal["above", "below"]
    threshold: int | float
    refuted_by: str
    is_primary: bool = True  # the verdict rests on primary claims; the others are reported beside them
    unit: str = ""  # of the number, as "points"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and the number that came out, with its interval over seeds; None where the runs do not say."""

    claim: StudyClaim
    estimate: Interval | None

    @property
    def status(self) -> Status:
        """Supported or refuted where the whole interval lies on one side of the threshold."""
        if self.estimate is None:
            return "undecided"
        claim = self.claim
        is_above, is_below = self.estimate.low > claim.threshold, self.estimate.high < claim.threshold
        if claim.side == "below":
            is_above, is_below = is_below, is_above
        return "supported" if is_above else "refuted" if is_below else "undecided"


def overall_status(claims: tuple[JudgedClaim, ...]) -> Status:
    """Refuted if a primary claim is, supported if all are, undecided otherwise."""
    found = [judged.status for judged in claims if judged.claim.is_primary]
    if "refuted" in found:
        return "refuted"
    return "supported" if found and all(status == "supported" for status in found) else "undecided"


@dataclass(frozen=True)
class Protocol:
    """What a study asks, does and expects, as it was written before the first run."""

    question: str
    background: str  # what the paper, pilots and related work say
    hypothesis: str
    grid: str  # the runs, in words
    measured: dict[str, str]  # each column of the table of runs, and what it means
    analysis: str
    claims: tuple[StudyClaim, ...]
    left_out: str  # what was cut, and why

    @property
    def digest(self) -> str:
        """A fingerprint: a result carries that of the protocol it was made under."""
        return hashlib.sha256(json.dumps(plain(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Series:
    """Points of a picture: a number with its interval at each x."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[Interval, ...]
    look: Literal["line", "dashed", "points"] = "line"
    names: tuple[str, ...] = ()  # of the points, where each is a run

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or len(self.names) not in (0, len(self.x)):
            raise CountLensError(
                f"a series of {len(self.x)} places, {len(self.y)} numbers and {len(self.names)} names: they must be "
                "as many"
            )


@dataclass(frozen=True)
class Panel:
    """A picture of a study, as data; `app.figures.studies` draws it."""

    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    categories: bool = False  # x are names, in the order in which they first come


@dataclass(frozen=True)
class Study:
    """A question over many runs, and how it is answered."""

    number: int  # of its page in docs/findings
    title: str
    protocol: Protocol
    cells: tuple[Cell, ...]  # of the grid, as in a grid file
    quick_cells: tuple[Cell, ...]  # for minutes: the headline's runs, fewer seeds
    factors: Callable[[RunConfig], Row]  # what of a run's settings the table has
    measure: Callable[[RunFolder], Row]  # the numbers of one finished run
    estimate: Callable[[pd.DataFrame], dict[str, Interval | None]]  # of every claim, from the table alone
    draw: Callable[[pd.DataFrame], tuple[Panel, ...]]
    version: int = 1  # of `measure`: lines measured by another version are measured again

    def runs(self, quick: bool = False) -> list[SweepRun]:
        """The runs of the grid, seed by seed: a study that is not finished is one of fewer seeds."""
        runs = expand([dict(cell) for cell in (self.quick_cells if quick else self.cells)])
        return sorted(runs, key=lambda run: run.config.seed)

    def judge(self, table: pd.DataFrame) -> tuple[JudgedClaim, ...]:
        """Every claim of the protocol, with the number that the table of runs gives."""
        estimates = self.estimate(table)
        return tuple(JudgedClaim(claim, estimates[claim.name]) for claim in self.protocol.claims)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table of runs, and what they mean."""
        return {"run": "name of the run", "seed": "its seed"} | self.protocol.measured


def seeds(number: int) -> list[int]:
    """The first so many seeds of studies."""
    return list(range(FIRST_SEED, FIRST_SEED + number))


def table_of(rows: Any) -> pd.DataFrame:
    """The table of runs; numbers that are missing become NaN."""
    return pd.DataFrame(list(rows)).infer_objects()
