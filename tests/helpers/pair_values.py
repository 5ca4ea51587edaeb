"""The variables of a counterfactual pair, read off its rows."""

import torch

from probes.inputs.counterfactuals import Pair
from training.batches import Batch
from training.tasks import BOS, NOT_SCORED, Task


def pair_values(pair: Pair, variable: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The value of a variable in each clean and in each corrupted row: two tensors [batch, _]."""
    sides = zip((pair.clean, pair.corrupted), pair.shared, strict=True)
    clean, corrupted = (row_values(variable, pair.task, rows, first) for rows, first in sides)
    return clean, corrupted


def row_values(variable: str, task: Task, rows: Batch, first: int) -> torch.Tensor:
    """The value of a variable in each row, whose shared tokens begin at column `first`."""
    begins_with_bos = rows.token_ids[:, :1] == (task.vocab.id(BOS) if task.bos else NOT_SCORED)
    values = {
        "shift": rows.position_ids[:, :1],
        "positions": rows.position_ids[:, first:],
        "bos": begins_with_bos.long(),
        "start": rows.token_ids[:, : task.start_tokens],
        "length": rows.token_ids.shape[1] - task.start_tokens - begins_with_bos.long(),
        "tokens": rows.token_ids[:, first:],
        "labels": rows.label_ids[:, first:],
    }
    return values[variable]
