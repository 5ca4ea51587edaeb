"""Scores: accuracy in distribution, at extrapolation positions, and at each position (paper, section 3.3)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.counter import Counter
from training.batches import Batch, draw_batch, merge_equal_rows
from training.tasks import Split, Task, check_sound

ROWS_AT_ONCE = 128  # rows a forward pass; more gains nothing on a CPU
FINAL_ROWS = 1024
FINAL_SEED = 20_250_001  # a sample that no checkpoint was chosen on


@dataclass(frozen=True)
class Scores:
    """Percent of scored tokens that are right, and by position for each split (None where nothing is scored)."""

    ind: float
    ood: float
    aux: float | None
    by_position: dict[str, list[float | None]]

    def summary(self) -> dict[str, float]:
        """ind, ood and, where the task has auxiliary rows, aux."""
        both = {"ind": self.ind, "ood": self.ood}
        return both if self.aux is None else both | {"aux": self.aux}


def evaluate(
    counter: Counter,
    task: Task,
    policy: str,
    rows: int = FINAL_ROWS,
    seed: int = FINAL_SEED,
) -> Scores:
    """Scores on freshly drawn rows of each split; the same seed draws the same rows."""
    max_position = counter.cfg.max_position
    if counter.has_positions:
        check_sound(task, max_position)
    else:
        max_position = max(max_position, task.longest_row)
    totals: dict[str, float] = {}
    by_position: dict[str, list[float | None]] = {}
    for split in task.splits:
        generator = torch.Generator(counter.device).manual_seed(seed)
        batch = draw_batch(task, policy, max_position, split, rows, generator)
        if task.rows_repeat:
            batch = merge_equal_rows(batch, counter.ignores_positions)
        right, scored = _tally(counter, task, split, batch)
        totals[split] = percent(right.sum(), scored.sum()) or 0.0
        by_position[split] = [percent(r, s) for r, s in zip(right, scored, strict=True)]
    return Scores(totals["ind"], totals["ood"], totals.get("aux"), by_position)


def predict(counter: Counter, batch: Batch) -> Int[Tensor, "batch pos"]:
    """The most likely token at every position, without gradients and in eval mode."""
    was_training = counter.training
    counter.eval()
    predictions = []
    with torch.inference_mode():
        for start in range(0, len(batch.token_ids), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            mask = None if counter.cfg.causal else batch.attention_mask[part]
            logits = counter(batch.token_ids[part], batch.position_ids[part], mask)
            predictions.append(logits.argmax(-1))
    counter.train(was_training)
    return torch.cat(predictions)


def _tally(
    counter: Counter, task: Task, split: Split, batch: Batch
) -> tuple[Float[Tensor, "pos"], Float[Tensor, "pos"]]:
    """Weighted numbers of right and of scored tokens at each position."""
    scored = task.scored(split, batch.label_ids) * batch.weights[:, None]
    right = (predict(counter, batch) == batch.label_ids) * scored
    return right.sum(0), scored.sum(0)


def percent(right: Tensor, scored: Tensor) -> float | None:
    """Of the scored ones, how many are right; None where none is."""
    return None if scored == 0 else round(100 * float(right) / float(scored), 4)
