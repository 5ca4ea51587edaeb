"""Would a rotary counter count better if its attention ignored positions? Rotations are removed from its scores.

The paper: selective counting needs attention that depends on tokens alone, which rope cannot have, since it rotates
queries and keys by their positions. If positions only disturb such an attention, removing them from a trained counter
should not change IND accuracy and should raise OOD accuracy. They are removed in three ways, in all layers:

    averaged       each score becomes its mean over the distances of training rows
    one distance   every key is scored as if it were at the same distance; the best distance is chosen on other rows
    known only     keys further away than any in training are scored as if they were at the largest trained distance

After the first two, scores at layer 0 do not depend on positions. The last shows what unseen distances cost.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from models.counter import Counter
from models.position_tables import rotate
from models.shapes import HeadVectors
from models.transformer import Transformer
from probes.ablation.edits import Hooks
from probes.ablation.outcomes import CausalTest, Outcome
from probes.ablation.score_hooks import AttentionScores, compute_scores, score_hooks
from probes.result import SHARE, Headline, NotApplicable, Verdict, task_of_counter
from probes.stats import Interval, bootstrap_mean, share_interval
from training.batches import Batch, draw_batch, position_range
from training.evaluate import evaluating, predict
from training.tasks import MAIN_SPLITS, Split, Task

ROWS = 48  # of each split
DISTANCES = (0, 1, 2, 4, 8, 16, 32)
SMALL = 0.01  # smaller changes of accuracy do not count
HINDERS, USED, NEUTRAL = "positions hinder", "positions are used", "positions make no difference"
LEAST_RIGHT = 0.5  # IND accuracy that a counter needs for this probe

Angle = tuple[Float[Tensor, "d_head"], Float[Tensor, "d_head"]]  # cos and sin of each column's angle


@dataclass(frozen=True)
class Rescored(Outcome):
    """The accuracy with other scores; its control is the clean counter."""

    change: Interval = field(kw_only=True)  # against the clean counter on the same rows

    @property
    def surely_lost(self) -> bool:
        """Whether accuracy surely falls."""
        return self.change.high < -SMALL

    @property
    def surely_gained(self) -> bool:
        """Whether accuracy surely rises."""
        return self.change.low > SMALL


@dataclass(frozen=True)
class PositionFree(CausalTest):
    """The accuracy of a counter after positions are removed from its attention scores."""

    task: str
    architecture: str
    clean: dict[str, Interval]  # by split
    outcomes: tuple[Rescored, ...]
    selective: bool  # whether the task counts kinds separately, which the paper's claim is about

    def accuracy(self, done: str, split: str) -> Rescored:
        """The outcome of one way on one split."""
        return next(outcome for outcome in self.outcomes if (outcome.done, outcome.place) == (done, split))

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways in which positions were removed."""
        return tuple(dict.fromkeys(outcome.done for outcome in self.outcomes))

    @property
    def blind(self) -> str:
        """The way without positions at layer 0 that keeps most IND accuracy."""
        return max(self.ways[:2], key=lambda done: self.accuracy(done, "ind").share.value)

    @property
    def label(self) -> str:
        """Whether positions are used (IND falls without them), hinder (OOD rises), or make no difference."""
        if self.accuracy(self.blind, "ind").surely_lost:
            return USED
        return HINDERS if self.accuracy(self.blind, "ood").surely_gained else NEUTRAL

    @property
    def headline(self) -> Headline:
        gained = self.accuracy(self.blind, "ood").share
        return Headline.of(self.label, "OOD accuracy without positions in the scores (share)", gained, SHARE)

    @property
    def verdict(self) -> Verdict:
        after = {done: {split: self.accuracy(done, split).share for split in self.clean} for done in self.ways}
        parts = [f"{done}: {_both(shares)}" for done, shares in after.items()]
        clean = _both(self.clean)
        # If positions are used, removing them says nothing about counters that learnt to do without them.
        agrees = None if not self.selective or self.label == USED else self.label == HINDERS
        return Verdict(
            f"In its attention scores {self.label}: clean {clean}; {'; '.join(parts)}.",
            "IND accuracy that stays as it is without positions, and OOD accuracy that rises",
            agrees,
        )


def _both(shares: dict[str, Interval]) -> str:
    """IND and OOD accuracy as text."""
    return f"IND {shares['ind'].value:.0%}, OOD {shares['ood'].value:.0%}"


def position_free(counter: Counter, rows: int = ROWS, seed: int = 0) -> PositionFree:
    """The accuracy of a rotary counter after positions are removed from its scores, in three ways."""
    task, policy = task_of_counter(counter)
    if not isinstance(counter, Transformer) or not counter.scheme.rotary:
        raise NotApplicable(
            "only rotary schemes have positions in the scores that can be taken out of a trained counter"
        )
    room = position_range(counter, task)
    generator = torch.Generator(counter.device).manual_seed(seed)
    batches = {split: draw_batch(task, policy, room, split, rows, generator) for split in MAIN_SPLITS}
    others = draw_batch(task, policy, room, "ind", rows // 2, generator)
    score = partial(_score_rows, counter, task)
    clean = {split: score(split, batch, ()) for split, batch in batches.items()}
    if clean["ind"].share.value < LEAST_RIGHT:
        raise NotApplicable(f"it answers {clean['ind'].share.value:.0%} of IND tokens right: there is little to lose")
    longest = task.train_length + task.prefix
    at_one = [_rescore_hooks(counter, _angle_at(counter, distance), 0) for distance in DISTANCES if distance < longest]
    ways = {
        "averaged over distances": _rescore_hooks(counter, _mean_angle(counter, longest), 0),
        "all at one distance": max(at_one, key=lambda hooks: score("ind", others, hooks).share.value),
        "known distances only": _rescore_hooks(counter, _angle_at(counter, longest - 1), longest),
    }
    outcomes = []
    for done, hooks in ways.items():
        for split, batch in batches.items():
            after = score(split, batch, hooks)
            change = after.change_from(clean[split], seed)
            outcomes.append(Rescored(done, split, "right", after.share, clean[split].share, change=change))
    shares: dict[str, Interval] = {split: before.share for split, before in clean.items()}
    return PositionFree(task.name, counter.cfg.position, shares, tuple(outcomes), task.form == "selective")


@dataclass(frozen=True)
class _RowScores:
    """The number of right and of scored tokens in each row."""

    hits: Float[np.ndarray, "row"]
    scored: Float[np.ndarray, "row"]
    share: Interval  # of scored tokens that are right; its interval counts rows, not tokens

    def change_from(self, before: "_RowScores", seed: int) -> Interval:
        """The change in accuracy, with an interval from resampling rows together with both of their results."""
        rows = np.ones(len(self.hits))
        (change,) = bootstrap_mean((self.hits - before.hits)[None], self.scored, rows, seed)
        return change


def _score_rows(counter: Counter, task: Task, split: Split, batch: Batch, hooks: Hooks) -> _RowScores:
    """The right tokens of each row of a batch, in a run with these hooks."""
    scored = task.scored(split, batch.label_ids)
    with evaluating(counter), counter.hooks(fwd_hooks=list(hooks)):
        right = predict(counter, batch) == batch.label_ids
    share = share_interval(right[scored].cpu(), independent=int(scored.any(1).sum()))
    hits, counts = ((part & scored).sum(1).double().cpu().numpy() for part in (right, scored))
    return _RowScores(hits, counts, share)


def _angle_at(counter: Transformer, distance: int) -> Angle:
    """The rotation of a key relative to a query that is `distance` tokens later."""
    return counter.rotary_cos[distance], -counter.rotary_sin[distance]


def _mean_angle(counter: Transformer, longest: int) -> Angle:
    """The mean relative rotation over all pairs of tokens in a training row, in which short distances are frequent."""
    weights = torch.arange(longest, 0, -1, device=counter.device).float()
    cos, sin = (
        (weights[:, None] * table[:longest]).sum(0) / weights.sum()
        for table in (counter.rotary_cos, counter.rotary_sin)
    )
    return cos, -sin


def _rescore_hooks(counter: Transformer, angle: Angle, beyond: int) -> Hooks:
    """Hooks in every layer that score keys at distance `beyond` or more as if all had the same relative rotation."""
    return score_hooks(counter, partial(_rescore, angle, beyond), rotated=False)


def _rescore(
    angle: Angle, beyond: int, scores: AttentionScores, q: HeadVectors, k: HeadVectors, scale: float
) -> AttentionScores:
    """The scores, with those of far keys replaced."""
    place = torch.arange(scores.shape[-1], device=scores.device)
    far = place[:, None] - place >= beyond
    cos, sin = (part.expand(*k.shape[:2], 1, -1) for part in angle)
    return torch.where(far & torch.isfinite(scores), compute_scores(q, rotate(k, cos, sin), scale), scores)
