"""Counting on from a given number, and counting taught by a helper token (paper, section 4; table 1, middle)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from training.tasks.base import LabelIds, Lengths, Task, TokenIds
from training.tasks.vocabulary import NOT_SCORED, Vocabulary, number_vocabulary

SYMBOL, HELPER = "a", "<b>"


@dataclass(frozen=True)
class ShiftedStart(Task):
    """Count on from the number that stands first.

    >>> ShiftedStart().label_tokens("7 a a a".split())
    ['-1', '8', '9', '10']
    """

    summary: ClassVar[str] = "count the a's on from the number that stands first"
    start_tokens: ClassVar[int] = 1
    counts_in_words: ClassVar[bool] = True
    first_start: ClassVar[int] = 0

    @property
    def name(self) -> str:
        return "shifted_start"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(self.largest_number, SYMBOL)

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.train_length + 1, self.ood_length - self.first_start

    def _main(self, lengths: Lengths, longest: int, generator: torch.Generator) -> TokenIds:
        starts = self._starts(lengths, generator)
        return torch.cat([starts[:, None], self._repeat(SYMBOL, lengths, longest)], 1)

    def _starts(self, lengths: Lengths, generator: torch.Generator) -> Lengths:
        """Uniform over the starts from which a row of this length still ends on a number word."""
        choices = self.ood_length - lengths - self.first_start + 1
        drawn = torch.rand(lengths.shape, generator=generator, device=generator.device) * choices
        return self.first_start + drawn.long()

    def _label(self, token_ids: TokenIds) -> LabelIds:
        """Start plus what came since. A helper row also names its start; a main row does not."""
        start = token_ids[:, :1]
        counts = start + torch.arange(token_ids.shape[1], device=token_ids.device)
        counts = counts.where((counts <= self.largest_number) & (start <= self.largest_number), NOT_SCORED)
        counts[:, 0] = counts[:, 0].where(self._names_its_start(token_ids), NOT_SCORED)
        return counts

    def _names_its_start(self, token_ids: TokenIds) -> torch.Tensor:
        return torch.zeros_like(token_ids[:, 0], dtype=torch.bool)


@dataclass(frozen=True)
class HelperToken(ShiftedStart):
    """Count from 1; auxiliary rows count another token, and further.

    >>> HelperToken().label_tokens("1 a a a".split())
    ['-1', '2', '3', '4']
    >>> HelperToken().label_tokens("1 <b> <b>".split())
    ['1', '2', '3']
    """

    summary: ClassVar[str] = "count the a's; number words are taught by counting more b's"
    has_auxiliary: ClassVar[bool] = True
    first_start: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return "helper"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(self.largest_number, SYMBOL, HELPER)

    def _starts(self, lengths: Lengths, generator: torch.Generator) -> Lengths:
        return torch.ones_like(lengths)

    def _auxiliary(self, batch: int, generator: torch.Generator) -> TokenIds:
        starts = self._auxiliary_starts(batch, generator)
        counted = self._repeat(HELPER, self.ood_length - starts, self.ood_length - 1)
        return torch.cat([starts[:, None], counted], 1)

    def _auxiliary_starts(self, batch: int, generator: torch.Generator) -> Lengths:
        return torch.ones(batch, dtype=torch.long, device=generator.device)

    def _names_its_start(self, token_ids: TokenIds) -> torch.Tensor:
        return (token_ids == self.plain_vocabulary.id(HELPER)).any(1)


@dataclass(frozen=True)
class HelperShiftedStart(HelperToken):
    """Both: rows start anywhere, main ones end where training ends, auxiliary ones at the last number.

    >>> HelperShiftedStart().label_tokens("7 a a".split())
    ['-1', '8', '9']
    >>> HelperShiftedStart().label_tokens("7 <b> <b>".split())
    ['7', '8', '9']
    """

    summary: ClassVar[str] = "helper token, and rows start from any number"

    @property
    def name(self) -> str:
        return "helper_shifted"

    def _main(self, lengths: Lengths, longest: int, generator: torch.Generator) -> TokenIds:
        """In distribution the last count is train_length + 1 for every start: `k a x (train_length + 1 - k)`."""
        if longest > self.train_length:
            starts = ShiftedStart._starts(self, lengths, generator)
        else:
            starts = self._auxiliary_starts(len(lengths), generator)
            lengths = self.train_length + 1 - starts
        return torch.cat([starts[:, None], self._repeat(SYMBOL, lengths, longest)], 1)

    def _auxiliary_starts(self, batch: int, generator: torch.Generator) -> Lengths:
        return torch.randint(1, self.train_length + 1, (batch,), generator=generator, device=generator.device)
