"""Scoring counters: accuracy in distribution, at extrapolation positions, and at each position (paper, section 3.3)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from models.counter import Counter
from training.batches import Batch, draw_tokens
from training.tasks import Task, check_sound

ROWS_AT_ONCE = 128  # rows per forward pass; more are no faster on a CPU
TOKENS_AT_ONCE = 2**17  # tokens per forward pass; a data file with one very long row must not take all memory
FINAL_ROWS = 1024
FINAL_SEED = 20_250_001  # of rows on which no checkpoint was chosen


@dataclass(frozen=True)
class Scores:
    """Accuracy in percent: over each split, and at each position of each split (None where nothing is scored).

    `summary` has ind, ood and, if the task has auxiliary rows, aux. First-token tasks also have the accuracy at all
    other tokens (ind_other, ood_other).
    """

    summary: dict[str, float]
    by_position: dict[str, list[float | None]]

    @property
    def ind(self) -> float:
        return self.summary["ind"]

    @property
    def ood(self) -> float:
        return self.summary["ood"]


def evaluate(
    counter: Counter,
    task: Task,
    policy: str,
    rows: int = FINAL_ROWS,
    seed: int = FINAL_SEED,
) -> Scores:
    """Scores a counter on each split of a task.

    All rows of a split are used if they can be listed and are at most `rows`. Otherwise that many are drawn; the same
    seed draws the same rows.
    """
    if counter.has_positions:
        check_sound(task, counter.cfg.max_position)
    summary: dict[str, float] = {}
    by_position: dict[str, list[float | None]] = {}
    for split in task.splits:
        generator = torch.Generator(counter.device).manual_seed(seed)
        tokens = draw_tokens(counter, task, policy, split, rows, generator)
        labels = tokens.batch.label_ids
        right = (predict(counter, tokens.batch) == labels) * tokens.shares
        scored = task.scored(split, labels)
        totals, rights = (scored * tokens.shares).sum(0), (scored * right).sum(0)
        summary[split] = percent(rights.sum(), totals.sum()) or 0.0
        by_position[split] = [percent(r, s) for r, s in zip(rights.tolist(), totals.tolist(), strict=True)]
        apart = task.scored_apart(labels)
        if apart is not None:
            summary[f"{split}_other"] = percent((apart * right).sum(), (apart * tokens.shares).sum()) or 0.0
    return Scores(summary, by_position)


@contextmanager
def evaluating(counter: Counter) -> Iterator[Counter]:
    """Puts the counter into eval mode, without gradients, for the block; afterwards it is in its former mode again."""
    was_training = counter.training
    counter.eval()
    try:
        with torch.inference_mode():
            yield counter
    finally:
        counter.train(was_training)


def predict(counter: Counter, batch: Batch) -> Int[Tensor, "batch pos"]:
    """The most likely token at every position, without gradients and in eval mode."""
    predictions = []
    with evaluating(counter):
        width = batch.token_ids.shape[1]
        rows = min(ROWS_AT_ONCE, max(1, TOKENS_AT_ONCE // width))
        for start in range(0, len(batch.token_ids), rows):
            # Beside a very long row most of a short one is padding, which needs no answer.
            longest = width if rows == ROWS_AT_ONCE else int(batch.attention_mask[start : start + rows].sum(1).max())
            part = slice(start, start + rows), slice(longest)
            mask = None if counter.cfg.causal else batch.attention_mask[part]
            answers = counter(batch.token_ids[part], batch.position_ids[part], mask).argmax(-1)
            predictions.append(F.pad(answers, (0, width - longest)))
    return torch.cat(predictions)


def percent(right: Tensor | float, scored: Tensor | float) -> float | None:
    """The share of scored tokens that are right, in percent; None if no token is scored."""
    return None if scored == 0 else round(100 * float(right) / float(scored), 4)
