"""First-token recognition, among equal tokens and among different ones (paper, appendices D and E)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from models.ranges import Kinds, Length
from models.shapes import TokenIds
from training.tasks.base import LabelIds, ListedTask, Split, Task
from training.tasks.compositions import sample_compositions
from training.tasks.selective import check_table, shuffle_kinds
from training.tasks.vocabulary import PAD, Vocabulary

FIRST, OTHER = "T", "F"


@dataclass(frozen=True)
class _FirstToken(Task):
    """Is this the first token? Scored at the first token only."""

    train_length: Length = 50
    ood_length: Length = 128

    @property
    def ood_lengths(self) -> tuple[int, int]:
        return self.ood_length, self.ood_length

    def _label(self, token_ids: TokenIds) -> LabelIds:
        labels = torch.full_like(token_ids, self.plain_vocabulary.id(OTHER))
        labels[:, 0] = self.plain_vocabulary.id(FIRST)
        return labels

    def scored(self, split: Split, label_ids: LabelIds) -> Bool[Tensor, "batch pos"]:
        """Only the first token: elsewhere the label is always the same, and right without any counting."""
        return label_ids == self.plain_vocabulary.id(FIRST)

    def scored_apart(self, label_ids: LabelIds) -> Bool[Tensor, "batch pos"]:
        """All other tokens, at which the paper's counters are always right."""
        return label_ids == self.plain_vocabulary.id(OTHER)


@dataclass(frozen=True)
class FirstTokenHomogeneous(_FirstToken, ListedTask):
    """Is this the first token? All tokens are equal.

    >>> FirstTokenHomogeneous().label_tokens("a a a".split())
    ['T', 'F', 'F']
    """

    summary: ClassVar[str] = "is this the first token? all tokens are equal"

    @property
    def name(self) -> str:
        return "first_tok_homogeneous"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return Vocabulary((OTHER, FIRST, PAD, "a"))

    def _rows_of_length(self, counted: int) -> list[list[str]]:
        return [["a"] * counted]


@dataclass(frozen=True)
class FirstTokenHeterogeneous(_FirstToken):
    """Is this the first token? There are ten kinds of tokens.

    >>> FirstTokenHeterogeneous().label_tokens("3 3 8".split())
    ['T', 'F', 'F']
    """

    n_kinds: Kinds = 10  # kinds of tokens, written 0, 1, ...

    summary: ClassVar[str] = "is this the first token? ten kinds of tokens, shuffled"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_table(self.n_kinds, self.ood_length, self.ood_length)

    @property
    def name(self) -> str:
        return "first_tok_heterogeneous"

    @cached_property
    def plain_vocabulary(self) -> Vocabulary:
        return Vocabulary((*(str(kind) for kind in range(self.n_kinds)), OTHER, FIRST, PAD))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Only the first kind, of which rows of equal tokens consist: nothing is counted, so kinds do not matter."""
        return ("0",)

    def _draw(self, split: Split, batch: int, generator: torch.Generator) -> TokenIds:
        return self._draw_length(self.ood_length if split == "ood" else self.train_length, batch, generator)

    def _draw_length(self, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
        lengths = torch.full((batch,), counted, device=generator.device)
        counts = sample_compositions(lengths, self.n_kinds, counted, generator, counted)
        return shuffle_kinds(counts, counted, self._pad, generator)
