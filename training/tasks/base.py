"""What a task is: a vocabulary, a sampler, and a labeller that is a pure function of the tokens.

So sequences that a user types, the paper's data files and drawn rows are all scored by the same function. Glossary: a
*row* is one sequence, padded on the right to the longest of its batch; a *prefix* is what comes before the tokens that
are counted (bos, or a start number); *auxiliary* rows teach number words in training only.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.border import check_fields
from models.errors import CountLensError
from models.ranges import Length
from models.shapes import Lengths, TokenIds
from training.tasks.vocabulary import BOS, NOT_SCORED, PAD, Vocabulary

Split = Literal["train", "ind", "ood", "aux"]
MAIN_SPLITS: tuple[Split, ...] = ("ind", "ood")
LabelIds = Int[Tensor, "batch pos"]

LONGEST_LISTED = 3000  # counted tokens; the list of all rows grows with the square of this number


@dataclass(frozen=True)
class Rows:
    """Sequences padded on the right, and their lengths."""

    token_ids: TokenIds
    lengths: Lengths


@dataclass(frozen=True)
class Task(ABC):
    """A form of counting. Its fields are parameters, with the paper's values as defaults."""

    train_length: Length = 50  # counted tokens of the longest training row
    ood_length: Length = 100  # how far extrapolation goes
    bos: bool = False  # each row begins with a special token that is not scored
    largest: Length | None = None  # largest number word in the vocabulary (as far as the task counts)

    summary: ClassVar[str] = ""  # one line for `countlens tasks`
    stem: ClassVar[str] = ""  # the name without its base, such as mod of mod7; "" if there is no base
    form: ClassVar[str] = ""  # key of the mechanisms that probes test; "" if there are none
    takes_bos: ClassVar[bool] = False
    counts_in_words: ClassVar[bool] = False  # a count of n needs the number word n
    start_tokens: ClassVar[int] = 0  # number words before the counted tokens
    has_auxiliary: ClassVar[bool] = False  # training mixes in auxiliary rows
    rows_repeat: ClassVar[bool] = False  # there are so few different rows that they can be listed

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
        """The largest number word in the vocabulary."""
        return self.ood_length if self.largest is None else self.largest

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name in the registry; bos is not part of it."""

    @property
    @abstractmethod
    def plain_vocabulary(self) -> Vocabulary:
        """The vocabulary without bos."""

    @abstractmethod
    def _draw(self, split: Split, batch: int, generator: torch.Generator) -> TokenIds:
        """Draws rows of a split, without bos."""

    @abstractmethod
    def _label(self, token_ids: TokenIds) -> LabelIds:
        """The label ids of rows without bos. The caller masks padding."""

    @property
    def train_lengths(self) -> tuple[int, int]:
        """The shortest and longest training row, in counted tokens."""
        return self.train_length, self.train_length

    @property
    def usual_length(self) -> int:
        """The number of counted tokens in the rows that probes use by default."""
        return self.train_length

    @property
    def ood_lengths(self) -> tuple[int, int]:
        """The shortest and longest OOD row, in counted tokens."""
        return self.train_length + 1, self.ood_length

    @property
    def period(self) -> int | None:
        """The number of equal tokens after which answers repeat; None if they do not, or if kinds are counted apart."""
        return None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tokens that are counted, each separately."""
        return ("a",)

    @property
    def not_counted(self) -> tuple[str, ...]:
        """Tokens that may occur in a row but change no count, such as the 0s in a task that counts 1s."""
        return ()

    @property
    def most_of_kind(self) -> int | None:
        """How often a kind may occur in a row; None if there is no limit."""
        return None

    def starts(self, counted: int) -> range:
        """The start numbers of training rows with `counted` counted tokens; empty if rows have no start number."""
        return range(0)

    @property
    def prefix_tokens(self) -> tuple[str, ...]:
        """The tokens before the counted ones: bos, or the smallest start number."""
        return (BOS,) * self.bos

    def answer_ids(self, earlier: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The answer at a token whose kind occurred `earlier` times before it; NOT_SCORED if there is no answer."""
        raise NotImplementedError(f"the answers of {self.name} do not depend on earlier tokens of a kind alone")

    @cached_property
    def vocab(self) -> Vocabulary:
        """The vocabulary, with bos if the task has it."""
        plain = self.plain_vocabulary
        return Vocabulary((*plain.tokens, BOS), plain.aliases) if self.bos else plain

    @property
    def prefix(self) -> int:
        """The number of tokens before the counted ones."""
        return int(self.bos) + self.start_tokens

    @property
    def longest_row(self) -> int:
        """The number of tokens in the longest row of any split."""
        return self.ood_lengths[1] + self.prefix

    @property
    def max_position(self) -> int:
        """The number of position ids that the paper uses for this task: the next power of two above the longest row."""
        return 1 << (self.longest_row - 1).bit_length()

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that are scored."""
        return (*MAIN_SPLITS, "aux") if self.has_auxiliary else MAIN_SPLITS

    def sample(self, split: Split, batch: int, generator: torch.Generator) -> Rows:
        """Draws rows of a split, on the generator's device. Half of training rows are auxiliary, if there are such."""
        return self._finish(self._draw(split, batch, generator))

    def list_rows(self, split: Split) -> tuple[Rows, Float[Tensor, "row"]] | None:
        """Every row of a split and its probability, on the CPU; None if there are too many rows to list."""
        return None

    def sample_length(self, counted: int, batch: int, generator: torch.Generator) -> Rows:
        """Draws training rows with `counted` counted tokens, or similar rows if training has none of this length."""
        return self._finish(self._draw_length(counted, batch, generator))

    @abstractmethod
    def _draw_length(self, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
        """Draws rows with `counted` counted tokens each, without bos."""

    def with_lengths(self, train_length: int | None, ood_length: int | None) -> "Task":
        """The same task, with the same vocabulary, on rows of other lengths; None keeps a length."""
        lengths = {"train_length": train_length, "ood_length": ood_length}
        given: dict[str, Any] = {name: length for name, length in lengths.items() if length is not None}
        return replace(self, **self._vocabulary_settings, **given) if given else self

    @property
    def _vocabulary_settings(self) -> dict[str, Any]:
        """The settings that keep the vocabulary as it is when lengths change."""
        return {"largest": self.largest_number}

    def label(self, token_ids: TokenIds) -> LabelIds:
        """The id of the right answer at every position; NOT_SCORED where there is none."""
        plain = token_ids[:, 1:] if self.bos else token_ids
        labels = self._label(plain)
        # A count without a number word in the vocabulary cannot be scored.
        labels = labels.where((plain != self._pad) & (labels < self.vocab.size), NOT_SCORED)
        return torch.cat([torch.full_like(token_ids[:, :1], NOT_SCORED), labels], 1) if self.bos else labels

    def scored(self, split: Split, label_ids: LabelIds) -> Bool[Tensor, "batch pos"]:
        """True at the positions that are scored: all labels, or for OOD those beyond the longest training position."""
        mask = label_ids != NOT_SCORED
        if split == "ood":
            mask = mask & (torch.arange(mask.shape[1], device=mask.device) >= self.prefix + self.train_length)
        return mask

    def scored_apart(self, label_ids: LabelIds) -> Bool[Tensor, "batch pos"] | None:
        """True at tokens outside the score whose accuracy is reported separately; None if there are no such tokens."""
        return None

    def label_tokens(self, tokens: Sequence[str]) -> list[str]:
        """The labels of one row, both as text as in the paper's files."""
        ids = torch.tensor([self.vocab.encode(tokens)])
        return self.vocab.decode(self.label(ids)[0].tolist())

    @property
    def _pad(self) -> int:
        return self.plain_vocabulary.id(PAD)

    def _finish(self, token_ids: TokenIds) -> Rows:
        """The rows with their lengths, and with bos in front if the task has it."""
        if self.bos:
            token_ids = torch.nn.functional.pad(token_ids, (1, 0), value=self.vocab.id(BOS))
        return Rows(token_ids, (token_ids != self._pad).sum(1))


@dataclass(frozen=True)
class ListedTask(Task):
    """A task with so few different rows that they can be listed, since nearly all tokens of a row are equal."""

    rows_repeat: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ood_length > LONGEST_LISTED:
            raise CountLensError(f"ood_length={self.ood_length}: rows of {self.name} are listed up to {LONGEST_LISTED}")

    def _main_rows(self, split: Split) -> list[list[str]]:
        """Every row of the split that is not auxiliary, without bos: rows of all lengths, all equally likely."""
        low, high = self.ood_lengths if split == "ood" else self.train_lengths
        return [row for length in range(low, high + 1) for row in self._rows_of_length(length)]

    def _auxiliary_rows(self) -> list[list[str]]:
        """Every auxiliary row; all are equally likely."""
        return []

    def list_rows(self, split: Split) -> tuple[Rows, Float[Tensor, "row"]]:
        """Every row of a split and its probability, on the CPU: never None."""
        token_ids, probabilities = self._listed(split)
        return self._finish(token_ids), probabilities

    def _listed(self, split: Split) -> tuple[TokenIds, Float[Tensor, "row"]]:
        if split not in self._cache:
            main = [] if split == "aux" else self._main_rows(split)
            auxiliary = self._auxiliary_rows() if split in ("aux", "train") else []
            ids = [torch.tensor(self.plain_vocabulary.encode(row)) for row in main + auxiliary]
            kinds = [kind for kind in (main, auxiliary) if kind]
            shares = [torch.full((len(kind),), 1 / len(kind) / len(kinds), dtype=torch.float64) for kind in kinds]
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self._pad)
            self._cache[split] = padded, torch.cat(shares)
        return self._cache[split]

    @cached_property
    def _cache(self) -> dict[str, tuple[TokenIds, Float[Tensor, "row"]]]:
        return {}

    @abstractmethod
    def _rows_of_length(self, counted: int) -> list[list[str]]:
        """Every row with `counted` counted tokens, without bos; all are equally likely."""

    def _draw_length(self, counted: int, batch: int, generator: torch.Generator) -> TokenIds:
        rows = self._rows_of_length(counted)
        if not rows:
            raise CountLensError(f"no row of {self.name} counts {counted} tokens: give a smaller length")
        token_ids = torch.tensor([self.plain_vocabulary.encode(row) for row in rows], device=generator.device)
        return token_ids[torch.randint(len(rows), (batch,), generator=generator, device=generator.device)]

    def _draw(self, split: Split, batch: int, generator: torch.Generator) -> TokenIds:
        token_ids, probabilities = (tensor.to(generator.device) for tensor in self._listed(split))
        return token_ids[torch.multinomial(probabilities.float(), batch, replacement=True, generator=generator)]


def running_count(token_ids: TokenIds, token_id: int) -> Int[Tensor, "batch pos"]:
    """How often the token occurs up to and including each position."""
    return (token_ids == token_id).cumsum(1)


def check_sound(task: Task, max_position: int) -> None:
    """Refuses a task whose longest row has more tokens than there are position ids."""
    if task.longest_row > max_position:
        raise CountLensError(
            f"{task.name} has rows of up to {task.longest_row} tokens, more than max_position={max_position}: "
            f"raise max_position or lower ood_length={task.ood_length}"
        )
