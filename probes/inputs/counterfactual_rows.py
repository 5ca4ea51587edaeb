"""Rows from which counterfactual pairs are made: all of one length, without padding, as the task samples them."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import CountLensError
from models.shapes import TokenIds
from probes.result import NotApplicable
from training.batches import Batch
from training.policies import count_offsets
from training.tasks import Task


def n_counted(task: Task, length: int | None) -> int:
    """The number of counted tokens in a row: `length`, or the task's usual length if it is None."""
    if length is None:
        return task.usual_length
    if length < 2:
        raise CountLensError(f"length={length}: a pair needs at least 2 counted tokens")
    return length


def n_shifts(task: Task, n_pos: int, max_position: int) -> int:
    """The number of shifts that rows of `n_pos` tokens can have: no more than training rows have."""
    if n_pos > max_position:
        raise NotApplicable(f"rows of {n_pos} tokens do not fit max_position={max_position}: give a smaller length")
    shortest = task.train_lengths[0] + task.prefix
    return int(count_offsets(torch.tensor([max(n_pos, min(shortest, max_position))]), max_position))


def counted_rows(task: Task, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
    """Rows of the task with `counted` counted tokens each, after bos or a start number."""
    try:
        return task.sample_length(counted, batch, generator).token_ids
    except CountLensError as error:
        raise NotApplicable(str(error)) from error


def shifted_rows(task: Task, token_ids: TokenIds, shifts: Int[Tensor, "batch"]) -> Batch:
    """A batch of these rows, without padding; each row has contiguous PIDs from its shift on."""
    position_ids = shifts[:, None] + torch.arange(token_ids.shape[1])
    no_padding = torch.ones_like(token_ids, dtype=torch.bool)
    return Batch(token_ids, position_ids, task.label(token_ids), no_padding, torch.ones(len(token_ids)))


def choose(allowed: Bool[Tensor, "batch choice"], generator: torch.Generator) -> Int[Tensor, "batch"]:
    """The index of one allowed choice per row; all allowed ones are equally likely."""
    if not bool(allowed.any(1).all()):
        raise NotApplicable("rows of this length leave nothing to choose a change from: give another length")
    return torch.multinomial(allowed.float(), 1, generator=generator)[:, 0]


def swap_into_column(
    token_ids: TokenIds, candidates: Bool[Tensor, "batch pos"], column: int, generator: torch.Generator
) -> TokenIds:
    """The rows with two tokens of each exchanged: the one in `column` and a random one of the row's candidates."""
    row, chosen = torch.arange(len(token_ids)), choose(candidates, generator)
    exchanged = token_ids.clone()
    exchanged[row, chosen] = token_ids[:, column]
    exchanged[row, column] = token_ids[row, chosen]
    return exchanged


def kinds_with_room(token_ids: TokenIds, task: Task) -> Bool[Tensor, "batch n_kinds"]:
    """True for the kinds of which a row may have one more token."""
    most = token_ids.shape[1] if task.most_of_kind is None else task.most_of_kind
    return kind_counts(token_ids, task) < most


def kind_counts(token_ids: TokenIds, task: Task) -> Int[Tensor, "batch n_kinds"]:
    """How often each kind occurs in a row."""
    return (token_ids[:, task.prefix :, None] == torch.tensor(task.vocab.encode(task.kinds))).sum(1)


def has_equal_elsewhere(token_ids: TokenIds, task: Task) -> Bool[Tensor, "batch pos"]:
    """True at counted tokens whose kind occurs elsewhere in the row too."""
    often = (token_ids[:, :, None] == token_ids[:, None, task.prefix :]).sum(2) > 1
    counted = ~torch.isin(token_ids, torch.tensor(task.vocab.encode(task.not_counted), dtype=torch.long))
    return often & counted & (torch.arange(token_ids.shape[1]) >= task.prefix)
