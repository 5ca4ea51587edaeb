"""Modular counting (paper, section 4; table 1, bottom)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from models.ranges import Base
from training.tasks.base import LabelIds, Lengths, Task, TokenIds
from training.tasks.vocabulary import BOS, Vocabulary, number_vocabulary


@dataclass(frozen=True)
class Modular(Task):
    """The count of `a` so far, from 1 to the base and round again.

    >>> Modular(base=3).label_tokens("a a a a".split())
    ['1', '2', '3', '1']
    >>> Modular(base=3, bos=True).label_tokens("<bos> a a".split())
    ['-1', '1', '2']
    """

    base: Base = 10  # counts go 1..base, then 1 again

    summary: ClassVar[str] = "count the a's from 1 to 10 and round again (any base: mod7, mod12, ...)"
    takes_bos: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"mod{self.base}"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        # The paper's file writes its first token as `0`.
        return number_vocabulary(max(self.largest_number, self.base), "a", aliases={"0": BOS} if self.bos else None)

    def _main(self, lengths: Lengths, longest: int, generator: torch.Generator) -> TokenIds:
        return self._repeat("a", lengths, longest)

    def _label(self, token_ids: TokenIds) -> LabelIds:
        seen = (token_ids == self.plain_vocabulary.id("a")).cumsum(1)
        return (seen - 1) % self.base + 1
