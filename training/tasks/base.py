"""What a task is: a vocabulary, a sampler, and a labeller that is a pure function of the tokens.

So a typed-in sequence, the paper's data files and the sampler are all scored by one thing. Glossary: a *row*
is one sequence, padded on the right to the longest of its batch; a *prefix* is what comes before the
tokens that are counted (bos, or a start number); *auxiliary* rows teach number words in training only.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.border import check_fields
from models.errors import CountLensError
from models.ranges import Length
from training.tasks.vocabulary import BOS, NOT_SCORED, PAD, Vocabulary

Split = Literal["train", "ind", "ood", "aux"]
TokenIds = Int[Tensor, "batch pos"]
LabelIds = Int[Tensor, "batch pos"]
Lengths = Int[Tensor, "batch"]


@dataclass(frozen=True)
class Rows:
    """Sampled sequences, padded on the right, and how long each is."""

    token_ids: TokenIds
    lengths: Lengths


@dataclass(frozen=True)
class Task(ABC):
    """A form of counting. Fields are its parameters; the paper's values are the defaults."""

    train_length: Length = 50  # counted tokens of a training row
    ood_length: Length = 100  # how far extrapolation goes
    bos: bool = False  # a token of its own stands first and is not scored
    largest: Length | None = None  # largest number word in the vocabulary (ood_length)

    summary: ClassVar[str] = ""
    takes_bos: ClassVar[bool] = False
    counts_in_words: ClassVar[bool] = False  # a count of n needs the number word n
    start_tokens: ClassVar[int] = 0  # number words before the counted tokens
    has_auxiliary: ClassVar[bool] = False
    rows_repeat: ClassVar[bool] = True  # few different rows exist, so a batch has doubles

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ood_lengths[0] > self.ood_lengths[1]:
            raise CountLensError(
                f"ood_length={self.ood_length} leaves no row beyond train_length={self.train_length}: make it longer"
            )
        if self.counts_in_words and self.largest_number < self.ood_length:
            raise CountLensError(
                f"{self.name} counts up to ood_length={self.ood_length}, but its number words end at "
                f"{self.largest_number}: train with a larger ood_length"
            )
        if self.bos and not self.takes_bos:
            raise CountLensError(f"{self.name} has no bos variant: its rows already begin with a token of their own")

    @property
    def largest_number(self) -> int:
        return self.ood_length if self.largest is None else self.largest

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name in the registry, bos aside."""

    @property
    @abstractmethod
    def plain_vocabulary(self) -> Vocabulary:
        """The vocabulary without bos."""

    @abstractmethod
    def _main(self, lengths: Lengths, longest: int, generator: torch.Generator) -> TokenIds:
        """Rows of the counting task itself, without bos: `lengths` counted tokens each, padded to `longest`."""

    @abstractmethod
    def _label(self, token_ids: TokenIds) -> LabelIds:
        """Label ids of rows without bos. Padding is masked by the caller."""

    def _auxiliary(self, batch: int, generator: torch.Generator) -> TokenIds:
        raise CountLensError(f"{self.name} has no auxiliary rows")

    @property
    def ood_lengths(self) -> tuple[int, int]:
        """The shortest and longest OOD row, in counted tokens."""
        return self.train_length + 1, self.ood_length

    @cached_property
    def vocab(self) -> Vocabulary:
        plain = self.plain_vocabulary
        return Vocabulary((*plain.tokens, BOS), plain.aliases) if self.bos else plain

    @property
    def prefix(self) -> int:
        """How many tokens stand before the counted ones."""
        return int(self.bos) + self.start_tokens

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row that any split has."""
        return self.ood_lengths[1] + self.prefix

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that are scored."""
        return ("ind", "ood", "aux") if self.has_auxiliary else ("ind", "ood")

    def sample(self, split: Split, batch: int, generator: torch.Generator) -> Rows:
        """Rows of a split, drawn on the generator's device; training mixes in auxiliary rows half and half."""
        low, high = self.ood_lengths if split == "ood" else (self.train_length, self.train_length)
        if split == "aux":
            return self._finish(self._auxiliary(batch, generator))
        counted = torch.randint(low, high + 1, (batch,), generator=generator, device=generator.device)
        main = self._main(counted, high, generator)
        if split == "train" and self.has_auxiliary:
            auxiliary = self._auxiliary(batch, generator)
            width = max(main.shape[1], auxiliary.shape[1])
            chosen = torch.rand(batch, 1, generator=generator, device=generator.device) < 0.5
            main = torch.where(chosen, self._widen(auxiliary, width), self._widen(main, width))
        return self._finish(main)

    def label(self, token_ids: TokenIds) -> LabelIds:
        """The right answer at every position, NOT_SCORED where there is none."""
        plain = token_ids[:, 1:] if self.bos else token_ids
        labels = self._label(plain)
        # A count beyond the vocabulary has no word, so it cannot be scored.
        labels = labels.where((plain != self._pad) & (labels < self.vocab.size), NOT_SCORED)
        return torch.cat([torch.full_like(token_ids[:, :1], NOT_SCORED), labels], 1) if self.bos else labels

    def scored(self, split: Split, label_ids: LabelIds) -> Bool[Tensor, "batch pos"]:
        """Where a split is scored: at every label, for OOD only beyond the longest training position."""
        mask = label_ids != NOT_SCORED
        if split == "ood":
            mask = mask & (torch.arange(mask.shape[1], device=mask.device) >= self.prefix + self.train_length)
        return mask

    def label_tokens(self, tokens: Sequence[str]) -> list[str]:
        """The labeller on one row of written tokens, as in the paper's files."""
        ids = torch.tensor([self.vocab.encode(tokens)])
        return self.vocab.decode(self.label(ids)[0].tolist())

    @property
    def _pad(self) -> int:
        return self.plain_vocabulary.id(PAD)

    def _widen(self, token_ids: TokenIds, width: int) -> Int[Tensor, "batch wider"]:
        return torch.nn.functional.pad(token_ids, (0, width - token_ids.shape[1]), value=self._pad)

    def _finish(self, token_ids: TokenIds) -> Rows:
        if self.bos:
            token_ids = torch.nn.functional.pad(token_ids, (1, 0), value=self.vocab.id(BOS))
        return Rows(token_ids, (token_ids != self._pad).sum(1))

    def _repeat(self, token: str, lengths: Lengths, longest: int) -> TokenIds:
        """Rows of one token, `lengths` of it each."""
        inside = torch.arange(longest, device=lengths.device) < lengths[:, None]
        return torch.where(inside, self.plain_vocabulary.id(token), self._pad)


def running_count(token_ids: TokenIds, token_id: int) -> Int[Tensor, "batch pos"]:
    """How often the token has occurred up to and including each position."""
    return (token_ids == token_id).cumsum(1)


def check_sound(task: Task, max_position: int) -> None:
    """Refuses a task whose longest row does not fit the positions."""
    if task.longest_row > max_position:
        raise CountLensError(
            f"{task.name} has rows of up to {task.longest_row} tokens, more than max_position={max_position}: "
            f"raise max_position or lower ood_length={task.ood_length}"
        )
