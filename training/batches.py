"""Task and position policy together make a batch; equal rows are kept once, with their number."""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.policies import get_policy
from training.tasks import Split, Task


@dataclass(frozen=True)
class Batch:
    """Rows as a counter takes them. `weights` says how many sampled rows each stands for."""

    token_ids: Int[Tensor, "batch pos"]
    position_ids: Int[Tensor, "batch pos"]
    label_ids: Int[Tensor, "batch pos"]
    attention_mask: Bool[Tensor, "batch pos"]  # False at padding
    weights: Float[Tensor, "batch"]

    def rows(self, index: slice | Int[Tensor, "some"]) -> "Batch":
        """Some of the rows."""
        return Batch(*(getattr(self, field.name)[index] for field in fields(self)))


def draw_batch(
    task: Task, policy: str, max_position: int, split: Split, size: int, generator: torch.Generator
) -> Batch:
    """A batch of a split, drawn on the generator's device."""
    rows = task.sample(split, size, generator)
    n_pos = rows.token_ids.shape[1]
    position_ids = get_policy(policy)(rows.lengths, n_pos, max_position, generator)
    inside = torch.arange(n_pos, device=rows.lengths.device) < rows.lengths[:, None]
    weights = torch.ones(size, device=rows.lengths.device)
    return Batch(rows.token_ids, position_ids, task.label(rows.token_ids), inside, weights)


def merge_equal_rows(batch: Batch, ignore_positions: bool) -> Batch:
    """The different rows of a batch, weighted by how often each occurs: the same loss and gradient, cheaper.

    Rows are equal when their tokens are and, unless the counter ignores them, their position ids.
    """
    key = batch.token_ids if ignore_positions else torch.cat([batch.token_ids, batch.position_ids], 1)
    _, group, counts = torch.unique(key, dim=0, return_inverse=True, return_counts=True)
    first = torch.full_like(counts, len(key)).scatter_reduce(
        0, group, torch.arange(len(key), device=key.device), "amin"
    )
    return replace(batch.rows(first), weights=counts.to(batch.weights.dtype))
