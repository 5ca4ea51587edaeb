"""The answers of a counter to a typed row, scored by the task's own labeller."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from models.counter import Counter
from models.errors import CountLensError
from probes.result import Result, Verdict, task_of_counter
from training.evaluate import evaluating
from training.tasks import BOS, NOT_SCORED, PAD, Task


@dataclass(frozen=True)
class Answers(Result):
    """The answers of a counter at each position of one row."""

    tokens: tuple[str, ...]
    position_ids: tuple[int, ...]
    labels: tuple[str | None, ...]  # the right answers; None at positions that are not scored
    answers: tuple[str, ...]  # the most likely token
    probability: tuple[float, ...]  # of the most likely token
    label_probability: tuple[float | None, ...]  # of the right answer

    @property
    def right(self) -> tuple[bool | None, ...]:
        """Whether each answer is right; None at positions that are not scored."""
        pairs = zip(self.labels, self.answers, strict=True)
        return tuple(None if label is None else label == answer for label, answer in pairs)

    @property
    def verdict(self) -> Verdict:
        scored = [right for right in self.right if right is not None]
        sentence = f"Right at {sum(scored)} of {len(scored)} positions"
        if not all(scored):
            first = self.right.index(False)
            sentence += f"; first mistake at position {first + 1}: {self.answers[first]}, not {self.labels[first]}"
        return Verdict(sentence + ".", "other tokens, or another shift")

    def to_frame(self) -> pd.DataFrame:
        """One line per position; positions count from 1."""
        columns = {name: list(values) for name, values in vars(self).items()}
        return pd.DataFrame({"position": range(1, len(self.tokens) + 1)} | columns | {"right": list(self.right)})


def predict_tokens(
    counter: Counter, tokens: str | Sequence[str], shift: int = 0, position_ids: Sequence[int] | None = None
) -> Answers:
    """The counter's and the right answers at each position of a typed row, such as "a a a".

    `shift` is the first position id; `position_ids` gives each token its own instead. The row must begin with `<bos>`
    if the task's rows do.
    """
    task, _ = task_of_counter(counter)
    tokens = tokens.split() if isinstance(tokens, str) else list(tokens)
    _check_row(counter, task, tokens, shift)
    token_ids = torch.tensor([task.vocab.encode(tokens)], device=counter.device)
    if position_ids is None:
        position_ids = range(shift, shift + len(tokens))
    _check_position_ids(counter, tokens, position_ids)
    with evaluating(counter):
        probabilities = counter(token_ids, torch.tensor([list(position_ids)], device=counter.device))[0].softmax(-1)
    best = probabilities.max(-1)
    labels = task.label(token_ids)[0]
    of_labels = probabilities.gather(1, labels.clamp(min=0)[:, None])[:, 0].tolist()
    scored = (labels != NOT_SCORED).tolist()
    names = task.vocab.decode(labels.tolist())
    return Answers(
        tuple(tokens),
        tuple(position_ids),
        tuple(name if is_scored else None for name, is_scored in zip(names, scored, strict=True)),
        tuple(task.vocab.decode(best.indices.tolist())),
        tuple(best.values.tolist()),
        tuple(value if is_scored else None for value, is_scored in zip(of_labels, scored, strict=True)),
    )


def example_row(counter: Counter, length: int, seed: int = 0) -> str:
    """A random row of the counter's task with `length` counted tokens, as text with blanks between tokens."""
    task, _ = task_of_counter(counter)
    most = task.ood_lengths[1]
    if not 2 <= length <= most:
        raise CountLensError(f"length={length} is outside 2..{most}, the longest row that this counter is scored on")
    rows = task.sample_length(length, 1, torch.Generator().manual_seed(seed))
    return " ".join(task.vocab.decode(rows.token_ids[0].tolist()))


def _check_row(counter: Counter, task: Task, tokens: Sequence[str], shift: int) -> None:
    """Refuses a row that is empty, padded, without bos, or too long for its shift."""
    if not tokens:
        raise CountLensError("an empty row: write tokens with blanks between them, such as `a a a`")
    if PAD in tokens:
        raise CountLensError(f"{PAD} fills up short rows and is no token of a row: leave it out")
    if task.bos and task.vocab.id(tokens[0]) != task.vocab.id(BOS):
        raise CountLensError(f"rows of this task begin with {BOS}, not with {tokens[0]!r}: put it first")
    if not counter.has_positions:
        if shift:
            raise CountLensError(f"shift={shift}: this counter has no positions, so leave the shift at 0")
        return
    room = counter.cfg.max_position - len(tokens)
    if room < 0:
        raise CountLensError(
            f"{len(tokens)} tokens are more than the counter's max_position={counter.cfg.max_position}: shorten the row"
        )
    if not 0 <= shift <= room:
        raise CountLensError(
            f"shift={shift} is outside 0..{room}: {len(tokens)} tokens must end below "
            f"max_position={counter.cfg.max_position}"
        )


def _check_position_ids(counter: Counter, tokens: Sequence[str], position_ids: Sequence[int]) -> None:
    """Refuses position ids that are not one per token or that the counter lacks."""
    if len(position_ids) != len(tokens):
        raise CountLensError(f"{len(position_ids)} position ids for {len(tokens)} tokens: give each token one")
    if not counter.has_positions:
        return
    end = counter.cfg.max_position
    for at, position_id in enumerate(position_ids, 1):
        if not 0 <= position_id < end:
            raise CountLensError(
                f"position id {position_id} of token {at} is outside 0..{end - 1}: move it less far, or shift the row"
            )
