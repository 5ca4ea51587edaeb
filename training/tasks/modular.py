"""Modular counting (paper, section 4; table 1, bottom)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from models.ranges import Base
from models.shapes import TokenIds
from training.tasks.base import LabelIds, ListedTask, running_count
from training.tasks.vocabulary import BOS, PAD, Vocabulary, number_vocabulary


@dataclass(frozen=True)
class Modular(ListedTask):
    """The count of `a` so far, from 1 to the base and then from 1 again. Training rows have all lengths from 1 on.

    >>> Modular(base=3).label_tokens("a a a a".split())
    ['1', '2', '3', '1']
    >>> Modular(base=3, bos=True).label_tokens("<bos> a a".split())
    ['-1', '1', '2']
    """

    base: Base = 10  # counts go 1..base, then 1 again

    summary: ClassVar[str] = "count the a's from 1 to 10 and round again (any base: mod7, mod12, ...)"
    stem: ClassVar[str] = "mod"
    form: ClassVar[str] = "modular"
    takes_bos: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.stem}{self.base}"

    @property
    def largest_number(self) -> int:
        return self.base

    @property
    def period(self) -> int:
        return self.base

    @property
    def train_lengths(self) -> tuple[int, int]:
        return 1, self.train_length

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        """The vocabulary, always with bos, as in the paper, whose files write bos as `0`."""
        return number_vocabulary(range(1, self.base + 1), BOS, PAD, "a", aliases={"0": BOS})

    @property
    def vocab(self) -> Vocabulary:
        return self.plain_vocabulary

    def _rows_of_length(self, counted: int) -> list[list[str]]:
        return [["a"] * counted]

    def _label(self, token_ids: TokenIds) -> LabelIds:
        return self.answer_ids(running_count(token_ids, self.plain_vocabulary.id("a")) - 1)

    def answer_ids(self, earlier: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        return earlier % self.base + 1
