"""How far a counter gets: right answers before its first mistake."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.counter import Counter
from models.families import build_counter
from probes.inputs.rows import draw_rows
from probes.result import Result, Verdict, task_of_counter
from training.evaluate import predict
from training.tasks import NOT_SCORED

CLEARLY = 5  # right answers more than an untrained counter has, in the median


@dataclass(frozen=True)
class Reach(Result):
    """Right answers before the first mistake, in every drawn OOD row."""

    architecture: str
    trained_up_to: int  # tokens
    reach: Int[np.ndarray, "row"]
    untrained: Int[np.ndarray, "row"]  # of a counter with fresh weights

    @property
    def verdict(self) -> Verdict:
        median, null = float(np.median(self.reach)), float(np.median(self.untrained))
        counts = median > null + CLEARLY
        return Verdict(
            f"It {'counts' if counts else 'does not count'}: in the median OOD row {median:g} answers are right before "
            f"the first mistake, of an untrained counter {null:g}.",
            f"a median of {'at most' if counts else 'more than'} {null + CLEARLY:g}",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per row."""
        return pd.DataFrame({"reach": self.reach, "untrained": self.untrained})


def reach(counter: Counter, rows: int = 256, seed: int = 0) -> Reach:
    """Draws OOD rows and counts the right answers before the first mistake in each."""
    task, policy = task_of_counter(counter)
    batch = draw_rows(counter, task, policy, "ood", rows, seed)
    scored = batch.label_ids != NOT_SCORED
    untrained = build_counter(counter.cfg, torch.Generator().manual_seed(seed)).to(counter.device)
    reached, of_untrained = (
        right_before_mistake(predict(each, batch) == batch.label_ids, scored)
        .repeat_interleave(batch.weights.long())  # a row that was drawn several times is in the batch once
        .cpu()
        .numpy()
        for each in (counter, untrained)
    )
    assert counter.info is not None
    return Reach(counter.info.architecture, task.prefix + task.train_length, reached, of_untrained)


def right_before_mistake(right: Bool[Tensor, "batch pos"], scored: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch"]:
    """Per row, the scored answers before the first one that is wrong.

    >>> scored = torch.tensor([[False, True, True, True]])
    >>> right_before_mistake(torch.tensor([[False, True, False, True]]), scored).tolist()
    [1]
    """
    return ((right | ~scored).cumprod(1).bool() & scored).sum(1)
