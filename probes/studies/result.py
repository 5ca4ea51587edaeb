"""The result of a study, in memory and on disk. `list_results(folder)` gives every result below a folder."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from models.border import convert, decode_json, read_text
from models.errors import CountLensError
from models.find import SHIPPED
from probes.result import Result, Verdict
from probes.stats import Interval
from probes.studies.study import JudgedClaim, Panel, Protocol, Row, Status, overall_status, table_of

RESULT = "result.json"  # its name in the folder of a study
SHIPPED_STUDIES = SHIPPED / "studies"  # results that come with the project; the explorer reads all below SHIPPED
MAX_BYTES = 16 * 2**20  # of a result; one of 400 runs has about 200,000
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class StudyResult(Result):
    """The table of runs of a study, and the judged claims and pictures that follow from it."""

    study: str  # its name in STUDIES
    number: int
    title: str
    protocol: Protocol
    protocol_digest: str
    quick: bool  # only the headline's runs, with fewer seeds
    n_runs: int  # in the grid
    missing: dict[str, str]  # runs of the grid that are not in the table, and why
    rows: tuple[Row, ...]  # the table of runs
    claims: tuple[JudgedClaim, ...]
    panels: tuple[Panel, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def status(self) -> Status:
        """Whether the hypothesis is supported, by its primary claims."""
        return overall_status(self.claims)

    @property
    def n_seeds(self) -> int:
        return len({row["seed"] for row in self.rows})

    @property
    def size(self) -> str:
        """The number of runs and seeds in the table, in words."""
        part = "" if len(self.rows) == self.n_runs else f" of {self.n_runs}"
        return f"{'quick: ' * self.quick}{len(self.rows)}{part} runs, {self.n_seeds} seeds"

    @property
    def verdict(self) -> Verdict:
        primary = [judged for judged in self.claims if judged.claim.is_primary]
        outcomes = "; ".join(describe(judged) for judged in primary)
        return Verdict(
            f"{self.status.capitalize()} ({self.size}). {outcomes[0].upper()}{outcomes[1:]}.",
            "; or ".join(f"{judged.claim.name}: {judged.claim.refuted_by}" for judged in primary),
        )

    def to_frame(self) -> pd.DataFrame:
        """The table of runs, one line per run."""
        return table_of(self.rows)

    def claims_frame(self) -> pd.DataFrame:
        """One line per claim."""
        lines = [
            {
                "claim": judged.claim.name,
                "primary": judged.claim.is_primary,
                "value": None if judged.estimate is None else judged.estimate.value,
                "low": None if judged.estimate is None else judged.estimate.low,
                "high": None if judged.estimate is None else judged.estimate.high,
                "side": judged.claim.side,
                "threshold": judged.claim.threshold,
                "status": judged.status,
            }
            for judged in self.claims
        ]
        return pd.DataFrame(lines)


def describe(judged: JudgedClaim) -> str:
    """A claim's name, number and status, in words."""
    if judged.estimate is None:
        return f"{judged.claim.name}: not measured"
    return f"{judged.claim.name}: {in_words(judged.estimate, judged.claim.unit)}, {judged.status}"


def in_words(interval: Interval, unit: str = "") -> str:
    """A number with its interval.

    >>> in_words(Interval(41.234, 37.0, 45.04), "points"), in_words(Interval(-0.823, -0.9, -0.7))
    ('41.2 points (37.0 to 45.0)', '-0.82 (-0.90 to -0.70)')
    """
    value, low, high = (f"{bound:.1f}" if abs(bound) >= 10 else f"{bound:.2f}" for bound in vars(interval).values())
    return f"{value}{unit and f' {unit}'} ({low} to {high})"


def read_result(path: Path) -> StudyResult:
    """The result in a file; raises CountLensError if it is not one."""
    result: StudyResult = convert(RESULT, decode_json(read_text(path, MAX_BYTES), str(path)), StudyResult)
    if result.schema_version != SCHEMA_VERSION:
        raise CountLensError(
            f"{path} has schema version {result.schema_version}, this CountLens reads {SCHEMA_VERSION}: run the study "
            "again"
        )
    if not any(judged.claim.is_primary for judged in result.claims):
        raise CountLensError(f"{path} has no primary claim, so it has no verdict: run the study again")
    if any("seed" not in row for row in result.rows):
        raise CountLensError(f"{path} has a run without a seed: run the study again")
    return result


@dataclass(frozen=True)
class ResultFile:
    """A file with a study's result: the result or, if it cannot be read, the reason."""

    path: Path
    result: StudyResult | None
    error: str | None = None


def list_results(folder: Path) -> list[ResultFile]:
    """Every result below a folder, in the order of the paths; a broken one is listed with its error."""
    files = []
    for path in sorted(folder.rglob(RESULT)):
        try:
            files.append(ResultFile(path, read_result(path)))
        except CountLensError as error:
            files.append(ResultFile(path, None, str(error)))
    return files
