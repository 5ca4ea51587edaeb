"""Counters that answer by a formula on their position ids, so that what they count from is known."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models import TransformerConfig
from models.header import CheckpointInfo
from models.transformer import Transformer
from training.tasks import Task, make_task, task_settings

MOD10 = make_task("mod10")
Formula = Callable[[Tensor], Tensor]  # position ids to distances from the beginning


class Planted(Transformer):
    """A counter that answers by a formula on its position ids; a share of its answers is noise."""

    def __init__(self, formula: Formula, task: Task = MOD10, wrong: float = 0.0) -> None:
        super().__init__(TransformerConfig(task.vocab.size, "ape", d_model=8))
        self.formula, self.task, self.wrong = formula, task, wrong
        self.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, token_ids: Tensor, position_ids: Tensor) -> Tensor:
        answers = self.task.answer_ids(self.formula(position_ids).round().long() - self.task.prefix)
        noise = torch.randint(1, 11, answers.shape, generator=self.generator)
        guess = torch.rand(answers.shape, generator=self.generator) < self.wrong
        return nn.functional.one_hot(torch.where(guess, noise, answers), self.task.vocab.size).float()


class Broken(Planted):
    """Right as long as PIDs are contiguous; where any was moved, all answers are noise."""

    def forward(self, token_ids: Tensor, position_ids: Tensor) -> Tensor:
        right = super().forward(token_ids, position_ids)
        noise = torch.rand(right.shape, generator=self.generator)
        contiguous = (position_ids.diff(dim=1) == 1).all(1)
        return torch.where(contiguous[:, None, None], right, noise)
