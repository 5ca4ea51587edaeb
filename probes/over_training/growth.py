"""Pictures over training: accuracy at each position, and principal components, at every snapshot of a run.

The components are those of the last snapshot, so that the picture does not rotate from step to step and shows how the
states move to their final places. The states of each snapshot are centred separately.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from models.checkpoint import load_counter
from probes.inputs.equal_tokens import contiguous_pids, equal_token_activations
from probes.over_training.dynamics import Run, snapshots_of
from probes.reading.pca import pca_for
from probes.reading.periods import USUAL_MODULUS
from probes.result import Result, Verdict, task_of_counter
from probes.sites import Site
from training.evaluate import evaluate

ROWS = 64  # of each split, at every snapshot
COUNTS = 90.0  # percent right from which on a position counts as learnt
DIMENSIONS = 2


@dataclass(frozen=True)
class AccuracyGrowth(Result):
    """Percent right at each position, snapshot by snapshot."""

    steps: Int[np.ndarray, "snapshot"]
    percent: Float[np.ndarray, "snapshot pos"]  # NaN at positions that are not scored
    trained_up_to: int  # the last position that training rows have

    def learnt(self, snapshot: int) -> int:
        """The number of positions at which a snapshot is right at least 90 % of the time."""
        return int((self.percent[snapshot] >= COUNTS).sum())

    @property
    def verdict(self) -> Verdict:
        scored = int((~np.isnan(self.percent[-1])).sum())
        counts = [self.learnt(snapshot) for snapshot in range(len(self.steps))]
        half = next((step for step, count in zip(self.steps, counts, strict=True) if count > scored / 2), None)
        when = "never more than half of them" if half is None else f"more than half of them from step {half:,} on"
        return Verdict(
            f"At the end {counts[-1]} of {scored} positions are right {COUNTS:.0f} % of the time or more; {when}.",
            "another seed of the run",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per snapshot and position; positions count from 1."""
        places = np.arange(1, self.percent.shape[1] + 1)
        return _long_table(self.steps, "position", places, {"percent": self.percent})


@dataclass(frozen=True)
class PcaGrowth(Result):
    """The states of equal tokens on the last snapshot's components, snapshot by snapshot."""

    site: Site
    modulus: int  # the task's base, or 10: positions are coloured modulo this
    steps: Int[np.ndarray, "snapshot"]
    pids: Int[np.ndarray, "pos"]
    coordinates: Float[np.ndarray, "snapshot pos component"]
    shares: Float[np.ndarray, "snapshot"]  # share of a snapshot's variance on these components

    @property
    def verdict(self) -> Verdict:
        return Verdict(
            f"The plane that holds {self.shares[-1]:.0%} of the variance at {self.site.label} in the end holds "
            f"{self.shares[0]:.0%} of it at the start.",
            "another site, or another seed of the run",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per snapshot and PID."""
        components = {f"component_{number + 1}": self.coordinates[:, :, number] for number in range(DIMENSIONS)}
        return _long_table(self.steps, "pid", self.pids, components)


def _long_table(
    steps: Int[np.ndarray, "snapshot"],
    name: str,
    places: Int[np.ndarray, "pos"],
    columns: dict[str, Float[np.ndarray, "snapshot pos"]],
) -> pd.DataFrame:
    """A table with one line per snapshot and place."""
    index = {"step": np.repeat(steps, len(places)), name: np.tile(places, len(steps))}
    return pd.DataFrame(index | {column: values.ravel() for column, values in columns.items()})


def accuracy_growth(run: Run, rows: int = ROWS, seed: int = 0) -> AccuracyGrowth:
    """The accuracy at each position for every snapshot of a run, on the same rows."""
    by_step = snapshots_of(run)
    percent = []
    for path in by_step.values():
        counter = load_counter(path)
        task, policy = task_of_counter(counter)
        percent.append(_by_position(evaluate(counter, task, policy, rows, seed).by_position))
    return AccuracyGrowth(np.array(list(by_step)), np.array(percent), task.prefix + task.train_length)


def _by_position(splits: dict[str, list[float | None]]) -> list[float]:
    """Accuracy at each position: of IND rows as far as they go, then of OOD rows; NaN if not scored."""
    ind, ood = splits["ind"], splits["ood"]
    merged = [*ind, *ood[len(ind) :]]
    return [np.nan if value is None else value for value in merged]


def pca_growth(run: Run, site: Site) -> PcaGrowth:
    """The states of equal tokens for every snapshot of a run, on the last snapshot's principal components."""
    by_step = snapshots_of(run)
    states = []
    for path in by_step.values():
        counter = load_counter(path)
        task, _ = task_of_counter(counter)
        places = contiguous_pids(counter, None, task.prefix)
        x = equal_token_activations(counter, task, places, [site], task.kinds[0])[site].astype(np.float64)
        states.append(x - x.mean(0))
    with np.errstate(invalid="ignore"):  # 0 / 0 if all states are equal, as without positions
        pca = pca_for(states[-1], DIMENSIONS).fit(states[-1])
    coordinates = np.array([pca.transform(x) for x in states])
    total = np.array([(x**2).sum() for x in states])
    on_plane = (coordinates**2).sum((1, 2))
    shares = np.divide(on_plane, total, out=np.zeros_like(total), where=total > 0)
    modulus = getattr(task, "base", None) or USUAL_MODULUS
    return PcaGrowth(site, modulus, np.array(list(by_step)), places, coordinates, shares)
