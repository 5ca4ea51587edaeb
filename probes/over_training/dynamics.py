"""Learning dynamics: scores over a run's snapshots, and between which of them each rises.

One run says what happened in it. What comes before what is a question to several (`over_training.order`).
The start of an accuracy is what one answer, said everywhere, would get: learning to say only that is no counting.
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
Score = Callable[[Counter, int], float]  # of one counter, on rows drawn from a seed


def accuracy(split: Split) -> Score:
    """The score "percent of this split's scored tokens that are right", on few rows."""

    def score(counter: Counter, seed: int) -> float:
        task, policy = task_of_counter(counter)
        batch = draw_rows(counter, task, policy, split, ROWS, seed)
        scored = task.scored(split, batch.label_ids) * batch.weights[:, None]
        right = (predict(counter, batch) == batch.label_ids) * scored
        return float(100 * right.sum() / scored.sum())

    return score


def accuracy_of_one_answer(split: Split) -> Score:
    """The score of always saying the same."""

    def score(counter: Counter, seed: int) -> float:
        task, policy = task_of_counter(counter)
        batch = draw_rows(counter, task, policy, split, ROWS, seed)
        return constant_share(batch, task.scored(split, batch.label_ids))

    return score


def variation(counter: Counter, seed: int) -> float:
    """How much layer 0's attention scores vary with position: their std, mean over heads and token pairs."""
    return attention_variation(counter, layer=0, seed=seed).at(0).mean_std


def first_token_effect(counter: Counter, seed: int) -> float:
    """How many points of IND accuracy are lost without the first token, beyond those lost without the second."""
    return first_token_cost(counter, rows=ROWS // 2, seed=seed)


# A curve that raises NotApplicable is left out, with its reason. Its floor is what it would be worth without anything
# learnt; one that has none starts from its first value.
CURVES: dict[str, Score] = {
    "ind": accuracy("ind"),
    "ood": accuracy("ood"),
    "cluster score": base_score,
    "first-token readability": first_token_score,
    "attention variation": variation,
    "first-token effect": first_token_effect,
}
FLOORS: dict[str, Score] = {"ind": accuracy_of_one_answer("ind"), "ood": accuracy_of_one_answer("ood")}


@dataclass(frozen=True)
class Dynamics(Result):
    """Scores over training."""

    steps: Int[np.ndarray, "snapshot"]
    curves: dict[str, Float[np.ndarray, "snapshot"]]
    floors: dict[str, float]  # what a curve starts from, where that is not its first value
    skipped: dict[str, str]  # curves that make no sense for this counter, and why

    @cached_property
    def rises(self) -> dict[str, Rise]:
        """By curve, those that are sure and those that are not."""
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
        """One line a curve and snapshot; the rise is the same on all lines of a curve."""
        frames = [
            pd.DataFrame({"curve": name, "step": self.steps, "score": self.curves[name]} | asdict(rise))
            for name, rise in self.rises.items()
        ]
        return pd.concat(frames, ignore_index=True)


def snapshots(run: Run) -> dict[int, Path]:
    """The checkpoints that a run kept over training, by step."""
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
    """Scores over the snapshots of a run; `curves` names some of CURVES, by default all."""
    names = list(CURVES) if curves is None else curves
    for name in names:
        if name not in CURVES:
            raise unknown("curve", name, CURVES)
    found = snapshots(run)
    scores: dict[str, list[float]] = {name: [] for name in names}
    skipped: dict[str, str] = {}
    for path in found.values():
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
    return Dynamics(np.array(list(found)), kept, floors, skipped)
