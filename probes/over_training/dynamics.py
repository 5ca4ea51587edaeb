"""Learning dynamics: scores over a run's snapshots, and which of them rise before, with or after OOD accuracy.

A curve's *half-rise* is the step at which it first passes halfway between its start and its highest value. It is known
only to lie between two neighbouring snapshots; two curves whose half-rises lie between the same two rise together.
The start of an accuracy is what one answer, said everywhere, would get: learning to say only that is no counting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from models.checkpoint import load_counter
from models.counter import Counter
from models.errors import unknown
from models.find import SNAPSHOTS, find_checkpoint, find_snapshots
from probes.ablation.bos_ablation import bos_ablation
from probes.inputs.rows import constant_share, draw_rows
from probes.reading.attention_variation import attention_variation
from probes.reading.first_token import first_token_score
from probes.reading.mod_pca import base_score
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from training.evaluate import predict
from training.tasks import Split

Order = Literal["before", "with", "after"]

REFERENCE = "ood"  # the curve that the others are compared with
ROWS = 32  # of each split, at every snapshot
LEAST_SNAPSHOTS = 4
# A rise is more than wandering up and down when it is so many times the median change between neighbours: of curves
# that are noise alone, 5 in 100 or fewer pass.
LEAST_RISE = 4.5
NEGLIGIBLE = 0.01  # of a curve's largest value


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
    """How many points of IND accuracy are lost when nothing can look at the first token."""
    effects = bos_ablation(counter, rows=ROWS // 2, seed=seed).effects
    return -next(effect for effect in effects if effect.layer is None).ind.value


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
class HalfRise:
    """Where a curve has done half of its rise: at about `step`, surely after `low` and not after `high`."""

    step: float
    low: int
    high: int


@dataclass(frozen=True)
class Dynamics(Result):
    """Scores over training."""

    steps: Int[np.ndarray, "snapshot"]
    curves: dict[str, Float[np.ndarray, "snapshot"]]
    floors: dict[str, float]  # what a curve starts from, where that is not its first value
    skipped: dict[str, str]  # curves that make no sense for this counter, and why

    @property
    def half_rises(self) -> dict[str, HalfRise | None]:
        """By curve; None for one that does not rise."""
        return {name: half_rise(self.steps, scores, self.floors.get(name)) for name, scores in self.curves.items()}

    def order(self, name: str) -> Order | None:
        """Whether a curve rises before, with or after OOD accuracy; None where one of them does not rise."""
        halves = self.half_rises
        one, other = halves[name], halves[REFERENCE]
        if one is None or other is None:
            return None
        if one.high <= other.low:
            return "before"
        return "after" if other.high <= one.low else "with"

    @property
    def verdict(self) -> Verdict:
        halves = self.half_rises
        reference = halves.get(REFERENCE)
        others = {name: half for name, half in halves.items() if name != REFERENCE and half is not None}
        never = [name for name in halves if name not in others and name != REFERENCE]
        if reference is None:
            risen = [_say(name, half) for name, half in sorted(others.items(), key=lambda item: item[1].step)]
            parts = ["OOD accuracy does not rise", *risen]
        else:
            parts = [f"OOD accuracy is halfway up at {_between(reference)}"]
            for order in ("before", "with", "after"):
                parts += [
                    f"{_say(name, half)}, {order} it" for name, half in others.items() if self.order(name) == order
                ]
        if never:
            parts.append(f"without a rise: {', '.join(never)}")
        widest = "another seed of the run, or more snapshots (`--snapshots`) between those that an order rests on"
        return Verdict("; ".join(parts) + ".", widest)

    def to_frame(self) -> pd.DataFrame:
        """One line a curve and snapshot; the half-rise is the same on all lines of a curve."""
        frames = []
        for name, half in self.half_rises.items():
            at = (None, None, None) if half is None else (half.step, half.low, half.high)
            found = dict(zip(("half_rise", "half_low", "half_high"), at, strict=True))
            frames.append(pd.DataFrame({"curve": name, "step": self.steps, "score": self.curves[name]} | found))
        return pd.concat(frames, ignore_index=True)


def _between(half: HalfRise) -> str:
    return f"step {half.step:,.0f} ({half.low:,} to {half.high:,})"


def _say(name: str, half: HalfRise) -> str:
    return f"{name} at {_between(half)}"


def half_rise(
    steps: Int[np.ndarray, "snapshot"], scores: Float[np.ndarray, "snapshot"], floor: float | None = None
) -> HalfRise | None:
    """Where the scores first pass halfway to their highest value, read off on log(1 + step); None without a rise."""
    if floor is not None:
        scores = np.maximum(scores, floor)
    rise = scores.max() - scores[0]
    if rise <= max(LEAST_RISE * np.median(np.abs(np.diff(scores))), NEGLIGIBLE * np.abs(scores).max()):
        return None
    level = scores[0] + rise / 2
    after = int(np.argmax(scores >= level))
    before = after - 1
    part = (level - scores[before]) / (scores[after] - scores[before])
    log_low, log_high = np.log1p(steps[[before, after]])
    return HalfRise(float(np.expm1(log_low + part * (log_high - log_low))), int(steps[before]), int(steps[after]))


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
