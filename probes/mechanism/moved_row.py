"""One row whose tokens have other position ids than they should: by hand what `anchors` tests in bulk.

Right answers do not depend on position ids: they count tokens. What a counter answers to moved ids therefore shows what
it goes by. Beside its answers stand those of a counter that follows the paper's equation, own PID minus the first
token's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from models.counter import Counter
from models.errors import CountLensError
from probes.mechanism.anchor_formulas import ANCHORS
from probes.reading.answers import Answers, predict_tokens
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from training.tasks import NOT_SCORED, Task


@dataclass(frozen=True)
class Move:
    """Position ids of some tokens, which count from 1, moved by some places."""

    first: int
    last: int
    by: int


@dataclass(frozen=True)
class MovedRow(Result):
    """The answers to a row before and after its position ids are moved."""

    before: Answers
    after: Answers
    paper: tuple[str | None, ...] | None  # answers by the paper's equation; None where the task is not modular

    @property
    def changed(self) -> tuple[bool, ...]:
        """Whether the answer changes, at each scored token."""
        return tuple(
            label is not None and before != after
            for label, before, after in zip(self.before.labels, self.before.answers, self.after.answers, strict=True)
        )

    @property
    def verdict(self) -> Verdict:
        scored = [label is not None for label in self.before.labels]
        sentence = f"{sum(self.changed)} of {sum(scored)} answers change"
        if self.paper is not None and any(self.changed):
            telling = [
                answer == expected
                for label, answer, expected in zip(self.before.labels, self.after.answers, self.paper, strict=True)
                if label is not None and expected != label
            ]
            sentence += (
                f"; by own minus first position id {len(telling)} answers would differ from the count, and "
                f"{sum(telling)} of them are given"
            )
        return Verdict(sentence + ".", "other tokens moved, or moved further")

    def to_frame(self) -> pd.DataFrame:
        """One line per position, which counts from 1."""
        columns = {
            "token": self.before.tokens,
            "position_id": self.before.position_ids,
            "moved_to": self.after.position_ids,
            "right": self.before.labels,
            "before": self.before.answers,
            "after": self.after.answers,
            "paper": self.paper or (None,) * len(self.changed),
        }
        return pd.DataFrame({"position": range(1, len(self.changed) + 1)} | columns)


def moved_row(counter: Counter, tokens: str | Sequence[str], moves: Sequence[Move], shift: int = 0) -> MovedRow:
    """What the counter answers to a written row with and without these moves; a token may be moved more than once."""
    if not counter.has_positions:
        raise NotApplicable("this counter has no position ids to move")
    task, _ = task_of_counter(counter)
    before = predict_tokens(counter, tokens, shift)
    moved = list(before.position_ids)
    for move in moves:
        if not 1 <= move.first <= move.last <= len(moved):
            raise CountLensError(f"tokens {move.first} to {move.last} are not in the row: it has 1 to {len(moved)}")
        for at in range(move.first - 1, move.last):
            moved[at] += move.by
    after = predict_tokens(counter, tokens, position_ids=moved)
    return MovedRow(before, after, _paper_answers(task, before, moved))


def _paper_answers(task: Task, row: Answers, position_ids: Sequence[int]) -> tuple[str | None, ...] | None:
    """What own PID minus the first token's gives."""
    if task.period is None:
        return None
    distance = ANCHORS["first token"].distance(torch.tensor(position_ids), task.period)
    ids = task.answer_ids(distance.long() - task.prefix).tolist()
    names = task.vocab.decode([max(answer, 0) for answer in ids])
    return tuple(
        None if label is None or answer == NOT_SCORED else name
        for label, answer, name in zip(row.labels, ids, names, strict=True)
    )
