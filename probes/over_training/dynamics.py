"""Learning dynamics: scores over the snapshots of a run, and the steps between which each rises.

A single run cannot show what generally rises first; `over_training.order` compares several. The floor of an accuracy is
that of the best constant answer: learning to give only that answer is not counting.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from models.checkpoint import load_counter
from models.counter import Counter
from models.errors import unknown
from models.find import SNAPSHOTS, find_checkpoint, find_snapshots
from probes.ablation.bos_ablation import first_token_cost
from probes.inputs.rows import constant_share, draw_rows
from probes.over_training.rises import Rise, find_rise
from probes.reading.attention_variation import attention_variation
from probes.reading.first_token import first_token_score
from probes.reading.mod_pca import base_score
from probes.result import Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.stats import say_p
from training.evaluate import predict
from training.tasks import Split

REFERENCE = "ood"  # the curve that the others are compared with
ROWS = 32  # of each split, at every snapshot
LEAST_SNAPSHOTS = 4

Run = str | Path | Mapping[int, Path]  # a run's name or path, or its snapshots by step
Score = Callable[[Counter, int], float]  # of a counter, with a seed for its random rows


def accuracy(split: Split) -> Score:
    """A function that returns a counter's accuracy on this split in percent, on few rows."""

    def score(counter: Counter, seed: int) -> float:
        task, policy = task_of_counter(counter)
        batch = draw_rows(counter, task, policy, split, ROWS, seed)
        scored = task.scored(split, batch.label_ids) * batch.weights[:, None]
        right = (predict(counter, batch) == batch.label_ids) * scored
        return float(100 * right.sum() / scored.sum())

    return score


def constant_accuracy(split: Split) -> Score:
    """A function that returns the accuracy of the best constant answer on this split, in percent."""

    def score(counter: Counter, seed: int) -> float:
        task, policy = task_of_counter(counter)
        batch = draw_rows(counter, task, policy, split, ROWS, seed)
        return constant_share(batch, task.scored(split, batch.label_ids))

    return score


def variation(counter: Counter, seed: int) -> float:
    """The std over positions of layer 0's attention scores, averaged over heads and token pairs."""
    return attention_variation(counter, layer=0, seed=seed).at(0).mean_std


def first_token_effect(counter: Counter, seed: int) -> float:
    """How many points of IND accuracy are lost without the first token, minus those lost without the second."""
    return first_token_cost(counter, rows=ROWS // 2, seed=seed)


# A curve that raises NotApplicable is skipped, with its reason. The floor of a curve is its value if nothing is learnt;
# without a floor, a curve starts from its first value.
CURVES: dict[str, Score] = {
    "ind": accuracy("ind"),
    "ood": accuracy("ood"),
    "cluster score": base_score,
    "first-token readability": first_token_score,
    "attention variation": variation,
    "first-token effect": first_token_effect,
}
FLOORS: dict[str, Score] = {"ind": constant_accuracy("ind"), "ood": constant_accuracy("ood")}


@dataclass(frozen=True)
class Dynamics(Result):
    """The scores of a run's snapshots."""

    steps: Int[np.ndarray, "snapshot"]
    curves: dict[str, Float[np.ndarray, "snapshot"]]
    floors: dict[str, float]  # of curves that do not start from their first value
    skipped: dict[str, str]  # curves that do not apply to this counter, and why

    @cached_property
    def rises(self) -> dict[str, Rise]:
        """The rise of each curve, significant or not."""
        return {name: find_rise(self.steps, scores, self.floors.get(name)) for name, scores in self.curves.items()}

    @property
    def headline(self) -> Headline:
        rise = self.rises[REFERENCE]
        measure = "step at which OOD accuracy has risen"
        if not rise.sure:
            return Headline("OOD accuracy does not surely rise", measure)
        return Headline("OOD accuracy rises", measure, rise.end)

    @property
    def verdict(self) -> Verdict:
        sure = sorted((item for item in self.rises.items() if item[1].sure), key=lambda item: item[1].end)
        unsure = [f"{name} ({say_p(rise.p)})" for name, rise in self.rises.items() if not rise.sure]
        parts = [f"{name} from step {rise.begin:,} to {rise.end:,} ({say_p(rise.p)})" for name, rise in sure]
        sentence = f"In this run rise: {'; '.join(parts)}" if parts else "In this run nothing surely rises"
        if unsure:
            sentence += f"; no more than random walks of such changes: {', '.join(unsure)}"
        return Verdict(
            f"{sentence}. One run: no claim about what comes first.",
            "a curve whose changes, with signs drawn anew, got as far up in more than 5 % of cases; an order takes six "
            "or more runs that agree",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per curve and snapshot; the rise is repeated on all lines of a curve."""
        frames = [
            pd.DataFrame({"curve": name, "step": self.steps, "score": self.curves[name]} | asdict(rise))
            for name, rise in self.rises.items()
        ]
        return pd.concat(frames, ignore_index=True)


def snapshots_of(run: Run) -> dict[int, Path]:
    """The snapshots that a run kept over training, by step; refuses a run with too few."""
    if isinstance(run, Mapping):
        name, by_step = "this counter", dict(run)
    else:
        best = find_checkpoint(run)
        folder = best.parent.parent if best.parent.name == SNAPSHOTS else best.parent
        name, by_step = str(run), find_snapshots(folder).by_step
    if len(by_step) < LEAST_SNAPSHOTS:
        raise NotApplicable(
            f"{name} kept {len(by_step) or 'no'} snapshots, fewer than the {LEAST_SNAPSHOTS} that curves over "
            "training need: train it with `--snapshots 12`"
        )
    return by_step


def dynamics(run: Run, curves: list[str] | None = None, seed: int = 0) -> Dynamics:
    """The scores of all snapshots of a run; `curves` names some of CURVES, by default all."""
    names = list(CURVES) if curves is None else curves
    for name in names:
        if name not in CURVES:
            raise unknown("curve", name, CURVES)
    by_step = snapshots_of(run)
    scores: dict[str, list[float]] = {name: [] for name in names}
    skipped: dict[str, str] = {}
    for path in by_step.values():
        counter = load_counter(path)
        for name in names:
            if name in skipped:
                continue
            try:
                scores[name].append(CURVES[name](counter, seed))
            except NotApplicable as reason:
                skipped[name] = str(reason)
    kept = {name: np.array(values) for name, values in scores.items() if name not in skipped}
    floors = {name: FLOORS[name](counter, seed) for name in kept if name in FLOORS}
    return Dynamics(np.array(list(by_step)), kept, floors, skipped)
