"""Metrics of patched runs: how close their answers are to the clean run's. By name, or any function of logits.

A named metric is a row's mean over the positions whose clean label is scored (for `logit_diff`: and differs from the
corrupted label). A function gets logits [batch, pos, d_vocab] at the positions that are read, and returns one number or
one per row, as for TransformerLens' `patching`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import CountLensError, unknown
from models.shapes import Logits
from training.batches import Batch
from training.tasks import NOT_SCORED

Metric = Callable[[Logits], Tensor]
CellLogits = Float[Tensor, "cell batch read d_vocab"]
AtPositions = Float[Tensor, "cell batch read"]


@dataclass(frozen=True)
class Reference:
    """The labels and the clean answers that named metrics compare with, at the positions that are read."""

    clean_labels: Int[Tensor, "batch read"]
    corrupted_labels: Int[Tensor, "batch read"]
    clean_log_probs: Float[Tensor, "batch read d_vocab"]


def logit_diff(logits: CellLogits, reference: Reference) -> AtPositions:
    """The logit of the clean label minus that of the corrupted label."""
    return _at(logits, reference.clean_labels) - _at(logits, reference.corrupted_labels)


def probability(logits: CellLogits, reference: Reference) -> AtPositions:
    """The probability of the clean label."""
    return _at(logits.softmax(-1), reference.clean_labels)


def accuracy(logits: CellLogits, reference: Reference) -> AtPositions:
    """1 if the most likely token is the clean label, else 0."""
    return (logits.argmax(-1) == reference.clean_labels).to(logits.dtype)


def kl(logits: CellLogits, reference: Reference) -> AtPositions:
    """The Kullback-Leibler divergence from the clean run's probabilities, in nats: 0 if they are the same."""
    clean = reference.clean_log_probs
    return (clean.exp() * (clean - logits.log_softmax(-1))).sum(-1)


METRICS: dict[str, Callable[[CellLogits, Reference], AtPositions]] = {
    "logit_diff": logit_diff,
    "probability": probability,
    "accuracy": accuracy,
    "kl": kl,
}


@dataclass(frozen=True)
class Scorer:
    """A metric for a pair: the positions that it reads, and the function of the logits there."""

    name: str
    reads: Int[Tensor, "read"]
    metric: Callable[[CellLogits], Float[Tensor, "cell row"]]

    def __call__(self, logits: CellLogits) -> Float[Tensor, "cell row"]:
        """The metric of each cell and row; refuses values that are not finite."""
        values = self.metric(logits)
        if not torch.isfinite(values).all():
            cell, row = (int(index) for index in (~torch.isfinite(values)).nonzero()[0])
            raise CountLensError(
                f"metric {self.name} gives {float(values[cell, row])} (row {row} of it): a metric must be finite for "
                f"every row; named ones are {', '.join(METRICS)}"
            )
        return values


def make_scorer(
    metric: str | Metric, clean: Batch, corrupted: Batch, clean_logits: Logits, at: Sequence[int] | None
) -> Scorer:
    """The scorer of a metric for a pair, at the positions `at` or at all that the metric can compare."""
    n_pos = clean.token_ids.shape[1]
    chosen = torch.tensor(resolve_positions(at, n_pos), device=clean.token_ids.device)
    if not isinstance(metric, str):
        return _function_scorer(metric, chosen)
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    counts = _is_compared(metric, clean.label_ids, corrupted.label_ids)[:, chosen]
    empty = (~counts.any(1)).nonzero().flatten().tolist()
    if empty:
        differ = " and the corrupted one differs" if metric == "logit_diff" else ""
        raise CountLensError(
            f"{metric} has nothing to compare in rows {empty}: no position is read whose clean label is scored"
            f"{differ}; choose other pairs, other positions `at`, or another metric"
        )
    read = counts.any(0)
    reads, counts = chosen[read], counts[:, read]
    reference = Reference(
        clean.label_ids[:, reads].clamp(min=0),
        corrupted.label_ids[:, reads].clamp(min=0),
        clean_logits[:, reads].log_softmax(-1),
    )

    def row_means(logits: CellLogits) -> Float[Tensor, "cell row"]:
        by_position = METRICS[metric](logits, reference)
        return by_position.where(counts, 0).sum(-1) / counts.sum(-1)

    return Scorer(metric, reads, row_means)


def _function_scorer(metric: Metric, reads: Int[Tensor, "read"]) -> Scorer:
    """The scorer that calls a user's function once per cell."""
    name = getattr(metric, "__name__", type(metric).__name__)

    def call_per_cell(logits: CellLogits) -> Float[Tensor, "cell row"]:
        values = [torch.as_tensor(metric(cell)) for cell in logits]
        n_batch = logits.shape[1]
        if values[0].ndim > 1 or values[0].shape not in ((), (n_batch,)):
            raise CountLensError(
                f"metric {name} gives shape {tuple(values[0].shape)}: return one number, or one for each of the "
                f"{n_batch} rows"
            )
        return torch.stack(values).reshape(len(values), -1).to(logits.dtype)

    return Scorer(name, reads, call_per_cell)


def resolve_positions(at: Sequence[int] | None, n_pos: int) -> list[int]:
    """The positions `at`, counted from the start and sorted, or all; refuses those outside the row."""
    for pos in at or ():
        if not -n_pos <= pos < n_pos:
            raise CountLensError(f"position {pos} is outside 0..{n_pos - 1}: rows have {n_pos} positions")
    return list(range(n_pos)) if at is None else sorted({pos % n_pos for pos in at})


def _is_compared(
    metric: str, clean_labels: Int[Tensor, "batch pos"], corrupted_labels: Int[Tensor, "batch pos"]
) -> Bool[Tensor, "batch pos"]:
    """True at the positions that a named metric compares."""
    scored = clean_labels != NOT_SCORED
    if metric != "logit_diff":
        return scored
    return scored & (corrupted_labels != NOT_SCORED) & (clean_labels != corrupted_labels)


def _at(values: CellLogits, labels: Int[Tensor, "batch read"]) -> AtPositions:
    """The value of the label at each position."""
    return values.gather(-1, labels.expand(len(values), -1, -1)[..., None])[..., 0]
