"""Selective counting, plain and modular (paper, section 4; table 1, bottom)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import CountLensError
from models.ranges import Base, Kinds, Length
from models.shapes import Lengths, TokenIds
from training.tasks.base import LabelIds, Split, Task
from training.tasks.compositions import KEEP_ALL, Acceptance, sample_compositions
from training.tasks.vocabulary import NOT_SCORED, PAD, Vocabulary, number_vocabulary

# The probability that the paper keeps a row: in training by how often its rarest kind occurs, in OOD by how far its
# most frequent kind stays below the limit. Only with bos, and in training only for rows of more than 20 tokens.
KEPT_TRAINING_ROWS = (0.0005, 0.015, 0.2, 0.8, 1.0)
KEPT_OOD_ROWS = (0.01, 0.5, 0.8, 1.0)
SHORT_ROW = 20

LARGEST_SAMPLER_TABLE = 4_000_000  # numbers in the sampler's table


def check_table(n_kinds: int, max_count: int, ood_length: int) -> None:
    """Refuses settings for which the table of `sample_compositions` would take minutes and gigabytes."""
    size = n_kinds * max_count * ood_length
    if size > LARGEST_SAMPLER_TABLE:
        raise CountLensError(
            f"{n_kinds} kinds of at most {max_count} tokens in rows of up to {ood_length} need a table of {size:,} "
            f"numbers, more than {LARGEST_SAMPLER_TABLE:,}: lower ood_length"
        )


def shuffle_kinds(counts: Int[Tensor, "batch n_kinds"], longest: int, pad: int, generator: torch.Generator) -> TokenIds:
    """Rows in random order in which kind k occurs counts[k] times, padded to `longest` tokens."""
    columns = torch.arange(longest, device=counts.device)
    ends = counts.cumsum(1)
    kinds = (columns[None, :, None] >= ends[:, None, :]).sum(2)
    inside = columns < ends[:, -1:]
    keys = torch.rand(inside.shape, generator=generator, device=generator.device).where(inside, 2.0)
    return kinds.where(inside, pad).gather(1, keys.argsort(1))


@dataclass(frozen=True)
class Selective(Task):
    """How often this kind of token occurred before.

    With bos, training rows have all lengths from 1 on, and rows without some kind are rare, as in the paper's files.

    >>> Selective().label_tokens("4 9 4 4".split())
    ['0', '0', '1', '2']
    """

    n_kinds: Kinds = 10  # kinds of tokens, written 0, 1, ...
    max_count: Length = 10  # how often a kind may occur

    summary: ClassVar[str] = "for each token, how often its kind occurred before"
    form: ClassVar[str] = "selective"
    takes_bos: ClassVar[bool] = True

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
    def balanced(self) -> bool:
        """Whether rows are reweighted and have all lengths, as those with bos in the paper."""
        return self.bos

    @property
    def train_lengths(self) -> tuple[int, int]:
        return (1 if self.balanced else self.train_length), self.train_length

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.train_length + 1, self.ood_length - 1

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.n_kinds)))

    @property
    def most_of_kind(self) -> int:
        return self.max_count

    @property
    def largest_number(self) -> int:
        return max(self.n_kinds, self.max_count) - 1

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return number_vocabulary(range(self.largest_number + 1), PAD)

    def _draw(self, split: Split, batch: int, generator: torch.Generator) -> TokenIds:
        low, high = self.ood_lengths if split == "ood" else self.train_lengths
        lengths = torch.randint(low, high + 1, (batch,), generator=generator, device=generator.device)
        return shuffle_kinds(self._draw_counts(split, lengths, generator), high, self._pad, generator)

    def _draw_length(self, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
        split: Split = "ood" if counted > self.train_length else "train"
        lengths = torch.full((batch,), counted, device=generator.device)
        return shuffle_kinds(self._draw_counts(split, lengths, generator), counted, self._pad, generator)

    def count_shares(self, split: Split, rows: int, generator: torch.Generator) -> Float[Tensor, "count"]:
        """The share of rows in which a kind (all are alike) occurs 0, 1, ... times, estimated on drawn rows."""
        low, high = self.ood_lengths if split == "ood" else self.train_lengths
        lengths = torch.randint(low, high + 1, (rows,), generator=generator, device=generator.device)
        counts = self._draw_counts(split, lengths, generator)
        return counts.flatten().bincount(minlength=self.max_count + 1) / counts.numel()

    def _draw_counts(self, split: Split, lengths: Lengths, generator: torch.Generator) -> Int[Tensor, "batch n_kinds"]:
        """Draws how often each kind occurs in each row."""
        most = self.n_kinds * self.max_count

        def draw(totals: Lengths, acceptance: Acceptance = KEEP_ALL) -> Int[Tensor, "batch n_kinds"]:
            return sample_compositions(totals, self.n_kinds, self.max_count, generator, most, acceptance)

        if not self.balanced:
            return draw(lengths)
        if split == "ood":
            return self.max_count - draw(most - lengths, KEPT_OOD_ROWS)
        return torch.where((lengths > SHORT_ROW)[:, None], draw(lengths, KEPT_TRAINING_ROWS), draw(lengths))

    def _label(self, token_ids: TokenIds) -> LabelIds:
        same = token_ids[:, :, None] == token_ids[:, None, :]
        return self.answer_ids(same.tril(-1).sum(2))

    def answer_ids(self, earlier: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        return earlier.where((earlier >= 0) & (earlier <= self.largest_number), NOT_SCORED)


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
    stem: ClassVar[str] = "selective_mod"

    @property
    def name(self) -> str:
        return f"{self.stem}{self.base}"

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.ood_length, self.ood_length

    @property
    def largest_number(self) -> int:
        return max(self.n_kinds, self.base) - 1

    @property
    def balanced(self) -> bool:
        return False

    @property
    def max_position(self) -> int:
        """The number of position ids: 130 for 128 tokens, as in the paper."""
        return self.longest_row + 2

    def answer_ids(self, earlier: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        return (earlier % self.base).where(earlier >= 0, NOT_SCORED)
