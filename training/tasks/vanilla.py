"""Vanilla counting, with the succession sequence as auxiliary rows (paper, section 4; table 1, top)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from models.shapes import TokenIds
from training.tasks.base import LabelIds, ListedTask, running_count
from training.tasks.vocabulary import NOT_SCORED, PAD, Vocabulary, number_vocabulary


@dataclass(frozen=True)
class VanillaSuccession(ListedTask):
    """The count of `a` so far; auxiliary rows recite the numbers.

    >>> VanillaSuccession().label_tokens("a a a".split())
    ['1', '2', '3']
    >>> VanillaSuccession().label_tokens("1 2 3".split())
    ['2', '3', '4']
    """

    summary: ClassVar[str] = "count the a's; number words are taught by reciting 1 2 3 ..."
    takes_bos: ClassVar[bool] = True
    counts_in_words: ClassVar[bool] = True
    has_auxiliary: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "vanilla_succession"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(range(1, self.largest_number + 1), PAD, "a")

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.train_length + 1, self.ood_length - 1

    def _rows_of_length(self, counted: int) -> list[list[str]]:
        return [["a"] * counted]

    def _auxiliary_rows(self) -> list[list[str]]:
        return [[str(number) for number in range(1, self.ood_length)]]

    def _label(self, token_ids: TokenIds) -> LabelIds:
        symbol = self.plain_vocabulary.id("a")
        after = (token_ids + 1).where(token_ids < self.largest_number, NOT_SCORED)
        counts = running_count(token_ids, symbol)
        counts = counts.where(counts <= self.largest_number, NOT_SCORED)
        return torch.where(token_ids == symbol, counts, after)
