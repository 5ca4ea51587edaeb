"""The definition of each task, token by token: slow, and independent of the labellers. Keys are names without base."""

from collections.abc import Callable
from typing import Any

from training.tasks import BOS, Task, split_base


def _succession(task: Any, tokens: list[str]) -> list[str]:
    return [str(i + 1) if token == "a" else str(int(token) + 1) for i, token in enumerate(tokens)]


def _from_start(task: Any, tokens: list[str]) -> list[str]:
    first = tokens[0] if "<b>" in tokens else "-1"
    return [first, *(str(int(tokens[0]) + i) for i in range(1, len(tokens)))]


def _modular(task: Any, tokens: list[str]) -> list[str]:
    return [str(i % task.base + 1) for i in range(len(tokens))]


def _selective(task: Any, tokens: list[str]) -> list[str]:
    return [str(tokens[:i].count(token) % getattr(task, "base", 1000)) for i, token in enumerate(tokens)]


def _first_token(task: Any, tokens: list[str]) -> list[str]:
    return ["T"] + ["F"] * (len(tokens) - 1)


DEFINITIONS: dict[str, Callable[[Any, list[str]], list[str]]] = {
    "vanilla_succession": _succession,
    "helper": _from_start,
    "helper_shifted": _from_start,
    "shifted_start": _from_start,
    "mod": _modular,
    "selective": _selective,
    "selective_mod": _selective,
    "first_tok_homogeneous": _first_token,
    "first_tok_heterogeneous": _first_token,
}


def expected_labels(task: Task, tokens: list[str]) -> list[str]:
    """The right answer at each token of a row; "-1" at bos and where nothing is scored."""
    prefix = ["-1"] if tokens[0] == BOS else []
    return prefix + DEFINITIONS[split_base(task.name)[0]](task, tokens[len(prefix) :])
