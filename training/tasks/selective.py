"""Selective counting, plain and modular (paper, section 4; table 1, bottom)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from models.errors import CountLensError
from models.ranges import Base, Kinds, Length
from training.tasks.base import LabelIds, Lengths, Task, TokenIds
from training.tasks.compositions import sample_compositions
from training.tasks.vocabulary import Vocabulary, number_vocabulary

LARGEST_TABLE = 4_000_000  # numbers in the sampler's table


def check_table(n_kinds: int, max_count: int, ood_length: int) -> None:
    """Refuses settings for which `sample_compositions` would make a table that takes minutes and gigabytes."""
    size = n_kinds * max_count * ood_length
    if size > LARGEST_TABLE:
        raise CountLensError(
            f"{n_kinds} kinds of at most {max_count} tokens in rows of up to {ood_length} need a table of {size:,} "
            f"numbers, more than {LARGEST_TABLE:,}: lower ood_length"
        )


def shuffled_kinds(
    lengths: Lengths, longest: int, n_kinds: int, largest: int, pad: int, generator: torch.Generator
) -> TokenIds:
    """Rows of kinds 0..n_kinds-1 whose counts are a uniform bounded composition of the length, shuffled."""
    counts = sample_compositions(lengths, n_kinds, largest, generator, largest_total=longest)
    columns = torch.arange(longest, device=lengths.device)
    kinds = (columns[None, :, None] >= counts.cumsum(1)[:, None, :]).sum(2)
    inside = columns < lengths[:, None]
    keys = torch.rand(inside.shape, generator=generator, device=generator.device).where(inside, 2.0)
    return kinds.where(inside, pad).gather(1, keys.argsort(1))


@dataclass(frozen=True)
class Selective(Task):
    """How often this kind of token occurred before.

    >>> Selective().label_tokens("4 9 4 4".split())
    ['0', '0', '1', '2']
    """

    n_kinds: Kinds = 10  # kinds of tokens, written 0, 1, ...
    max_count: Length = 10  # how often a kind occurs at the most

    summary: ClassVar[str] = "for each token, how often its kind occurred before"
    takes_bos: ClassVar[bool] = True
    rows_repeat: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ood_lengths[1] > self.n_kinds * self.max_count:
            raise CountLensError(
                f"{self.n_kinds} kinds of at most {self.max_count} tokens cannot fill rows of {self.ood_lengths[1]}: "
                "lower ood_length or raise max_count"
            )
        check_table(self.n_kinds, self.max_count, self.ood_length)

    @property
    def name(self) -> str:
        return "selective"

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.train_length + 1, self.ood_length - 1

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(max(self.largest_number, self.n_kinds - 1))

    def _main(self, lengths: Lengths, longest: int, generator: torch.Generator) -> TokenIds:
        return shuffled_kinds(lengths, longest, self.n_kinds, self.max_count, self._pad, generator)

    def _label(self, token_ids: TokenIds) -> LabelIds:
        same = token_ids[:, :, None] == token_ids[:, None, :]
        return same.tril(-1).sum(2)


@dataclass(frozen=True)
class SelectiveModular(Selective):
    """How often this kind of token occurred before, modulo the base.

    >>> SelectiveModular().label_tokens("3 3 3 3 3 1".split())
    ['0', '1', '2', '3', '0', '0']
    """

    train_length: Length = 64
    ood_length: Length = 128
    n_kinds: Kinds = 4
    max_count: Length = 64
    base: Base = 4  # counts go 0..base-1, then 0 again

    summary: ClassVar[str] = "for each token, how often its kind occurred before, mod 4 (any base)"

    @property
    def name(self) -> str:
        return f"selective_mod{self.base}"

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.ood_length, self.ood_length

    def _label(self, token_ids: TokenIds) -> LabelIds:
        return super()._label(token_ids) % self.base
