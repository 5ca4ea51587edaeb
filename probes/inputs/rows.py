"""Rows on which a counter is probed, and the accuracy of a constant answer on them."""

import torch
from jaxtyping import Bool
from torch import Tensor

from models.counter import Counter
from training.batches import Batch, draw_batch, merge_equal_rows, position_range
from training.tasks import NOT_SCORED, Split, Task, check_sound


def draw_rows(
    counter: Counter, task: Task, policy: str, split: Split, rows: int, seed: int, ignore_positions: bool = False
) -> Batch:
    """A batch of `rows` random rows of a split. Equal rows are merged, and `weights` says how often each was drawn.

    With `ignore_positions`, rows that differ only in their position ids count as equal.
    """
    if counter.has_positions:
        check_sound(task, counter.cfg.max_position)
    generator = torch.Generator(counter.device).manual_seed(seed)
    batch = draw_batch(task, policy, position_range(counter, task), split, rows, generator)
    return merge_equal_rows(batch, ignore_positions or counter.ignores_positions) if task.rows_repeat else batch


def constant_share(batch: Batch, scored: Bool[Tensor, "batch pos"]) -> float:
    """Percent of scored tokens that are right if the answer is always the most frequent label.

    If only one label is ever scored (in the first-token tasks), the most frequent of all labels is taken.
    """
    labels = batch.label_ids
    judged = scored if len(labels[scored].unique()) > 1 else labels != NOT_SCORED
    weights = batch.weights[:, None].expand(scored.shape)
    best = torch.bincount(labels[judged], weights[judged]).argmax()
    return 100 * float((weights * scored * (labels == best)).sum() / (weights * scored).sum())
