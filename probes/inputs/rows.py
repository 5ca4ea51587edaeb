"""Rows to probe a counter on, and how sure a share over them is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import ndtri
from torch import Tensor

from models.counter import Counter
from training.batches import Batch, draw_batch, merge_equal_rows
from training.tasks import NOT_SCORED, Split, Task, check_sound

CONFIDENCE = 0.95
RESAMPLES = 500


@contextmanager
def evaluating(counter: Counter) -> Iterator[Counter]:
    """The counter in eval mode and without gradients; afterwards in the mode it was in."""
    was_training = counter.training
    counter.eval()
    try:
        with torch.inference_mode():
            yield counter
    finally:
        counter.train(was_training)


@dataclass(frozen=True)
class Interval:
    """An estimate and what it lies between, with 95 % confidence."""

    value: float
    low: float
    high: float


def draw_rows(
    counter: Counter, task: Task, policy: str, split: Split, rows: int, seed: int, ignore_positions: bool = False
) -> Batch:
    """Rows of a split, drawn at random, each different one once, with the number of times that it was drawn.

    With `ignore_positions` rows that differ only in their position ids are one.
    """
    max_position = counter.cfg.max_position
    if counter.has_positions:
        check_sound(task, max_position)
    else:
        max_position = max(max_position, task.longest_row)
    generator = torch.Generator(counter.device).manual_seed(seed)
    batch = draw_batch(task, policy, max_position, split, rows, generator)
    return merge_equal_rows(batch, ignore_positions or counter.ignores_positions) if task.rows_repeat else batch


def constant_share(batch: Batch, scored: Bool[Tensor, "batch pos"]) -> float:
    """Percent of scored tokens that one answer, said everywhere, gets at best.

    Where only one label is ever scored (the first-token tasks) that answer is the most frequent of all labels.
    """
    labels = batch.label_ids
    judged = scored if len(labels[scored].unique()) > 1 else labels != NOT_SCORED
    weights = batch.weights[:, None].expand(scored.shape)
    best = torch.bincount(labels[judged], weights[judged]).argmax()
    return 100 * float((weights * scored * (labels == best)).sum() / (weights * scored).sum())


def wilson(
    right: Float[np.ndarray, "at"], scored: Float[np.ndarray, "at"]
) -> tuple[Float[np.ndarray, "at"], Float[np.ndarray, "at"]]:
    """Wilson's interval of a share, between 0 and 1; NaN where nothing is scored."""
    z = ndtri((1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = right / scored
        centre = (share + z**2 / (2 * scored)) / (1 + z**2 / scored)
        half = z * np.sqrt(share * (1 - share) / scored + (z / (2 * scored)) ** 2) / (1 + z**2 / scored)
    return centre - half, centre + half


def share_interval(right: Bool[Tensor, "judged"], independent: int | None = None) -> Interval:
    """The share that is right, with Wilson's interval; where nothing is judged it may be anything.

    Where several judged answers go together, `independent` says how many do not: the interval is as wide as theirs.
    """
    if len(right) == 0:
        return Interval(0.0, 0.0, 1.0)
    share = float(right.double().mean())
    total = np.array([float(len(right) if independent is None else independent)])
    low, high = wilson(share * total, total)
    return Interval(share, float(low[0]), float(high[0]))


def bootstrap(
    sums: Float[np.ndarray, "what row"],
    counts: Float[np.ndarray, "row"],
    weights: Float[np.ndarray, "row"],
    seed: int,
) -> tuple[Float[np.ndarray, "what"], Float[np.ndarray, "what"], Float[np.ndarray, "what"]]:
    """A mean over tokens, and what it lies between when whole rows are drawn again: tokens of a row go together.

    `sums` and `counts` are over the tokens of each row; `weights` says how many drawn rows each stands for.
    """
    total = int(weights.sum())
    drawn = np.random.default_rng(seed).multinomial(total, weights / weights.sum(), size=RESAMPLES)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums @ weights / (counts @ weights)
        again = sums @ drawn.T / (drawn @ counts)
    low, high = np.nanquantile(again, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=-1)
    return mean, low, high
