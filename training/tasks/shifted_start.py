"""Counting on from a given number, and counting with a helper token (paper, section 4; table 1, middle)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from models.errors import CountLensError
from models.shapes import TokenIds
from training.tasks.base import LabelIds, ListedTask, Split
from training.tasks.vocabulary import NOT_SCORED, PAD, Vocabulary, number_vocabulary

SYMBOL, HELPER = "a", "<b>"
MOST_PAIRED = 300  # counted tokens up to which all pairs of start and length are listed


@dataclass(frozen=True)
class ShiftedStart(ListedTask):
    """Count on from the number at the beginning.

    >>> ShiftedStart().label_tokens("7 a a a".split())
    ['-1', '8', '9', '10']

    OOD rows are all pairs of a start and a length beyond training that still end on a number word. The paper's rows
    for its length-ratio table differ: they start from 0, and its OOD rows always end at the last number word.
    """

    from_zero: bool | None = None  # rows of the length-ratio table; None: if the lengths are not 50 and 100

    summary: ClassVar[str] = "count the a's on from the number that stands first"
    start_tokens: ClassVar[int] = 1
    counts_in_words: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_zero is False and self.ood_length > MOST_PAIRED and not self.has_auxiliary:
            raise CountLensError(
                f"ood_length={self.ood_length}: pairs of start and length are listed up to {MOST_PAIRED}"
            )

    @property
    def name(self) -> str:
        return "shifted_start"

    @property
    def starts_from_zero(self) -> bool:
        """Whether the rows are those of the length-ratio table, which start from 0."""
        return self.from_zero if self.from_zero is not None else (self.train_length, self.ood_length) != (50, 100)

    @property
    def first_start(self) -> int:
        """The smallest start number."""
        return 0 if self.starts_from_zero else 1

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(range(self.first_start, self.largest_number + 1), PAD, SYMBOL)

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.train_length + 1, self.ood_length - self.first_start

    @property
    def _vocabulary_settings(self) -> dict[str, Any]:
        return super()._vocabulary_settings | {"from_zero": self.starts_from_zero}

    def _main_rows(self, split: Split) -> list[list[str]]:
        if split != "ood":
            return self._rows_of_length(self.train_length)
        last = self.ood_length
        starts = range(self.first_start, last - self.train_length)
        if self.starts_from_zero:
            return [_row(start, last - start) for start in starts]
        return [_row(start, n) for start in starts for n in range(self.train_length + 1, last - start + 1)]

    @property
    def prefix_tokens(self) -> tuple[str, ...]:
        return (str(self.first_start),)

    def starts(self, counted: int) -> range:
        """The starts from which a row of this length still ends on a number word."""
        return range(self.first_start, self.ood_length - counted + 1)

    def _rows_of_length(self, counted: int) -> list[list[str]]:
        return [_row(start, counted) for start in self.starts(counted)]

    def _label(self, token_ids: TokenIds) -> LabelIds:
        """The start plus the tokens since. The start itself is labelled in helper rows, and not scored in main rows."""
        start = token_ids[:, :1]
        counts = start + torch.arange(token_ids.shape[1], device=token_ids.device)
        counts = counts.where((counts <= self.largest_number) & (start <= self.largest_number), NOT_SCORED)
        counts[:, 0] = counts[:, 0].where(self._names_its_start(token_ids), NOT_SCORED)
        return counts

    def _names_its_start(self, token_ids: TokenIds) -> Bool[Tensor, "batch"]:
        return torch.zeros_like(token_ids[:, 0], dtype=torch.bool)


@dataclass(frozen=True)
class HelperToken(ShiftedStart):
    """Count from 1. Auxiliary rows count another token, and further.

    >>> HelperToken().label_tokens("1 a a a".split())
    ['-1', '2', '3', '4']
    >>> HelperToken().label_tokens("1 <b> <b>".split())
    ['1', '2', '3']
    """

    from_zero: bool | None = False

    summary: ClassVar[str] = "count the a's; number words are taught by counting more b's"
    has_auxiliary: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "helper"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(range(1, self.largest_number + 1), PAD, SYMBOL, HELPER)

    def _main_rows(self, split: Split) -> list[list[str]]:
        return ListedTask._main_rows(self, split)  # all lengths, not the pairs of shifted start

    def starts(self, counted: int) -> range:
        return range(1, 2)

    def _auxiliary_rows(self) -> list[list[str]]:
        return [_row(1, self.ood_length - 1, HELPER)]

    def _names_its_start(self, token_ids: TokenIds) -> Bool[Tensor, "batch"]:
        return (token_ids == self.plain_vocabulary.id(HELPER)).any(1)


@dataclass(frozen=True)
class HelperShiftedStart(HelperToken):
    """Helper token and shifted start. Training rows all end at one number, OOD and auxiliary rows at the last one.

    >>> HelperShiftedStart().label_tokens("7 a a".split())
    ['-1', '8', '9']
    >>> HelperShiftedStart().label_tokens("7 <b> <b>".split())
    ['7', '8', '9']
    """

    summary: ClassVar[str] = "helper token, and rows start from any number"

    @property
    def name(self) -> str:
        return "helper_shifted"

    @property
    def train_lengths(self) -> tuple[int, int]:
        return 1, self.train_length

    def _main_rows(self, split: Split) -> list[list[str]]:
        end = self.ood_length if split == "ood" else self.train_length + 1
        return [_row(start, end - start) for start in range(1, self.train_length + 1)]

    def starts(self, counted: int) -> range:
        """The starts from which a row of this length ends no later than training rows or, if it is longer, OOD rows."""
        end = self.train_length + 1 if counted <= self.train_length else self.ood_length
        return range(1, end - counted + 1)

    @property
    def usual_length(self) -> int:
        """Half of the longest, since only shorter rows can start at several numbers."""
        return self.train_length // 2

    def _auxiliary_rows(self) -> list[list[str]]:
        return [_row(start, self.ood_length - start, HELPER) for start in range(1, self.train_length + 1)]


def _row(start: int, length: int, symbol: str = SYMBOL) -> list[str]:
    """A start number, followed by `length` symbols."""
    return [str(start)] + [symbol] * length
