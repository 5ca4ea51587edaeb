"""Scores: accuracy in distribution, at extrapolation positions, and at each position (paper, section 3.3)."""

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

ROWS_AT_ONCE = 128  # rows a forward pass; more gains nothing on a CPU
TOKENS_AT_ONCE = 2**17  # of these rows; a data file with one very long row must not take all memory
FINAL_ROWS = 1024
FINAL_SEED = 20_250_001  # a sample that no checkpoint was chosen on


@dataclass(frozen=True)
class Scores:
    """Percent of scored tokens that are right, and by position for each split (None where nothing is scored).

    `summary` has ind, ood and, where the task has auxiliary rows, aux; first-token tasks also say how they do at
    all the other tokens (ind_other, ood_other).
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
    """Scores on the rows of each split: all of them where they can be listed and are no more than `rows`.

    Otherwise that many are drawn; the same seed draws the same rows.
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
    """The counter in eval mode and without gradients; afterwards in the mode it was in."""
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
            # Beside a very long row most of a short one is padding, of which no answer is asked.
            longest = width if rows == ROWS_AT_ONCE else int(batch.attention_mask[start : start + rows].sum(1).max())
            part = slice(start, start + rows), slice(longest)
            mask = None if counter.cfg.causal else batch.attention_mask[part]
            answers = counter(batch.token_ids[part], batch.position_ids[part], mask).argmax(-1)
            predictions.append(F.pad(answers, (0, width - longest)))
    return torch.cat(predictions)


def percent(right: Tensor | float, scored: Tensor | float) -> float | None:
    """Of the scored ones, how many are right; None where none is."""
    return None if scored == 0 else round(100 * float(right) / float(scored), 4)
