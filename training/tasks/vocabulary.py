"""Tokens and their ids. The id of a number is the number itself, so that logit 7 is that of the count 7."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from models.errors import CountLensError, unknown

PAD, BOS = "<pad>", "<bos>"
NOT_SCORED = -1  # label id of a position that counts neither in the loss nor in a score; "-1" in files


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of tokens.

    >>> vocab = number_vocabulary(range(1, 11), PAD, "a")
    >>> vocab.encode(["a", "7"]), vocab.decode([7]), vocab.size
    ([11, 7], ['7'], 12)
    """

    tokens: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings, as in the paper's files

    @property
    def size(self) -> int:
        return len(self.tokens)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def id(self, token: str) -> int:
        """The id of one token."""
        token = self.aliases.get(token, token)
        if token not in self._ids:
            raise unknown("token", token, _abridge(self.tokens))
        return self._ids[token]

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of tokens."""
        ids = {token: self.id(token) for token in set(tokens)}
        return [ids[token] for token in tokens]

    def encode_labels(self, labels: Sequence[str]) -> list[int]:
        """The ids of labels; "-1" is NOT_SCORED. Aliases hold for inputs only."""
        missing = [label for label in labels if label != "-1" and label not in self._ids]
        if missing:
            raise unknown("label", missing[0], _abridge(self.tokens))
        return [NOT_SCORED if label == "-1" else self._ids[label] for label in labels]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """The tokens of ids; NOT_SCORED is "-1"."""
        size = self.size
        bad = [index for index in ids if not NOT_SCORED <= index < size]
        if bad:
            raise CountLensError(f"token id {bad[0]} is outside 0..{size - 1}")
        return ["-1" if index == NOT_SCORED else self.tokens[index] for index in ids]


def number_vocabulary(numbers: range, *symbols: str, aliases: Mapping[str, str] | None = None) -> Vocabulary:
    """A vocabulary of numbers from 0 or 1 on, and a task's symbols. The first symbol has id 0 if no number has."""
    words = [str(number) for number in numbers]
    in_front = symbols[: numbers.start]
    return Vocabulary((*in_front, *words, *symbols[len(in_front) :]), aliases or {})


def _abridge(tokens: Sequence[str]) -> list[str]:
    """The tokens for an error message, with the numbers shortened to a range: 0..100, <pad>, a."""
    numbers = [token for token in tokens if token.isdigit()]
    if len(numbers) < 3:
        return list(tokens)
    return [f"{numbers[0]}..{numbers[-1]}", *(token for token in tokens if not token.isdigit())]
