"""Parity: whether the number of 1s so far is odd."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from models.shapes import TokenIds
from training.tasks.base import LabelIds, Split, Task, running_count
from training.tasks.vocabulary import PAD, Vocabulary


@dataclass(frozen=True)
class Parity(Task):
    """1 where the number of 1s so far is odd, else 0; every row of bits is equally likely.

    >>> Parity().label_tokens("1 0 1 1".split())
    ['1', '1', '0', '1']
    """

    summary: ClassVar[str] = "whether the number of 1s so far is odd"
    takes_bos: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "parity"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return Vocabulary(("0", "1", PAD))

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("1",)

    @property
    def not_counted(self) -> tuple[str, ...]:
        return ("0",)

    def _draw(self, split: Split, batch: int, generator: torch.Generator) -> TokenIds:
        low, high = self.ood_lengths if split == "ood" else self.train_lengths
        lengths = torch.randint(low, high + 1, (batch, 1), generator=generator, device=generator.device)
        rows = self._draw_length(high, batch, generator)
        return rows.where(torch.arange(high, device=rows.device) < lengths, self._pad)

    def _draw_length(self, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
        return torch.randint(2, (batch, counted), generator=generator, device=generator.device)

    def _label(self, token_ids: TokenIds) -> LabelIds:
        return running_count(token_ids, self.plain_vocabulary.id("1")) % 2
