"""Trials of a recurrent memory: what it is at one token of a row, at a token of another row, and what is read next.

A claim says what the answers become when one variable of the memory is taken from the donor. Answers tell something
where the donor's and the row's own would differ. A trial's score is the share of its answers that are as claimed, of
those that should change or of those that should stay, whichever is less: taking all of the donor's memory, or none of
it, does not score where both should be seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from probes.inputs.counterfactual_rows import counted_rows
from probes.mechanism.memory import LaterAnswers, Remembers, Vectors
from probes.mechanism.memory_directions import Values
from probes.result import NotApplicable
from training.tasks import NOT_SCORED, Task
from training.tasks.base import running_count

LATER = 6  # tokens that are read after a transplant, where they are all alike
CANDIDATES = 32  # drawn for each trial that is wanted
LEAST_COUNTS = 12  # of equal tokens that are remembered
SAMPLE_ROWS = 40
SAMPLE = 400  # memories to which directions are fitted
KINDS = 3  # whose counts are taken from a donor; all kinds are alike
ROOM = 4  # tokens of two kinds that are read after a transplant


@dataclass(frozen=True)
class Trials:
    """Pairs of memories, the tokens that are read next, and the right answers there."""

    own: Vectors
    donor: Vectors
    next_ids: Int[Tensor, "row later"]
    own_labels: LaterAnswers
    donor_labels: LaterAnswers
    about: Int[Tensor, "row"]  # the kind whose count is taken from the donor; 0 where there is one kind

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, index: Tensor | slice) -> "Trials":
        return Trials(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def scores(self, answers: LaterAnswers, claimed: LaterAnswers) -> Float[Tensor, "row"]:
        """The score of each trial, from 0 to 1: how many of its answers are as claimed."""
        right = (answers == claimed).double()
        tells = self.own_labels != self.donor_labels
        groups = [tells & (claimed != self.own_labels), tells & (claimed == self.own_labels)]
        shares = [
            torch.where(group.any(1), (right * group).sum(1) / group.sum(1).clamp(min=1), torch.ones(len(right)))
            for group in groups
        ]
        return torch.minimum(*shares)


@dataclass(frozen=True)
class Form:
    """How memories of a form of counting are drawn."""

    sample: Callable[[Task, Remembers, torch.Generator], tuple[Vectors, Mapping[str, Values]]]
    trials: Callable[[Task, Remembers, int, torch.Generator], Trials]


def equal_row(task: Task) -> Int[Tensor, "1 pos"]:
    """The one row of modular counting, as long as training has it."""
    return torch.tensor([task.vocab.encode([*task.prefix_tokens, *task.kinds[:1] * task.train_length])])


def counted_memories(task: Task, memory: Remembers) -> Float[Tensor, "count d"]:
    """What is remembered of 1, 2, ... equal tokens: as many as leave room for those that are read next."""
    assert task.period is not None
    last = task.train_length - LATER
    if last < max(task.period + 1, LEAST_COUNTS):
        raise NotApplicable(
            f"training rows of {task.train_length} tokens are too short: after a round of {task.period} and "
            f"{LATER} tokens that are read, nothing is left to exchange"
        )
    return memory.after(equal_row(task))[0, task.prefix : task.prefix + last]


def labels_after(task: Task, counts: Int[Tensor, "row"], later: int = LATER) -> LaterAnswers:
    """The right answers at the `later` tokens that follow on `counts` equal ones."""
    return task.answer_ids(counts[:, None] + torch.arange(later))


def _modular_sample(task: Task, memory: Remembers, generator: torch.Generator) -> tuple[Vectors, Mapping[str, Values]]:
    assert task.period is not None
    vectors = counted_memories(task, memory)
    before = torch.arange(len(vectors))
    return vectors, {"ring": before % task.period, "drift": before // task.period}


def _modular_trials(task: Task, memory: Remembers, n_trials: int, generator: torch.Generator) -> Trials:
    """Two counts of one row that differ in their phase and in their round."""
    assert task.period is not None
    vectors = counted_memories(task, memory)
    own, donor = torch.randint(len(vectors), (2, CANDIDATES * n_trials), generator=generator)
    differ = (own % task.period != donor % task.period) & (own // task.period != donor // task.period)
    own, donor = (which[differ][:n_trials] for which in (own, donor))
    return equal_token_trials(task, vectors, own, donor)


def equal_token_trials(
    task: Task, vectors: Float[Tensor, "count d"], own: Int[Tensor, "row"], donor: Int[Tensor, "row"]
) -> Trials:
    """Trials whose memories are those of `own` + 1 and of `donor` + 1 equal tokens."""
    return Trials(
        own=vectors[own],
        donor=vectors[donor],
        next_ids=equal_row(task)[:, -1:].expand(len(own), LATER),
        own_labels=labels_after(task, own + 1),
        donor_labels=labels_after(task, donor + 1),
        about=torch.zeros_like(own),
    )


def _kind_counts(task: Task, token_ids: Int[Tensor, "row pos"]) -> Int[Tensor, "row pos kind"]:
    return torch.stack([running_count(token_ids, kind) for kind in task.vocab.encode(task.kinds)], 2)


def _selective_sample(
    task: Task, memory: Remembers, generator: torch.Generator
) -> tuple[Vectors, Mapping[str, Values]]:
    rows = counted_rows(task, task.train_length, SAMPLE_ROWS, generator)
    places = torch.randperm(rows.numel() - SAMPLE_ROWS * task.prefix, generator=generator)[:SAMPLE]
    vectors = memory.after(rows)[:, task.prefix :].flatten(0, 1)[places]
    counts = _kind_counts(task, rows)[:, task.prefix :].flatten(0, 1)[places]
    return vectors, dict(zip(task.kinds, counts.unbind(1), strict=True))


def _selective_trials(task: Task, memory: Remembers, n_trials: int, generator: torch.Generator) -> Trials:
    """Two rows that have two kinds in different numbers; then tokens of these two kinds, in turns."""
    if len(task.kinds) < 2:
        raise NotApplicable("with one kind of token there is no other whose count could stay")
    number = CANDIDATES * n_trials
    n_rows = max(SAMPLE_ROWS, n_trials)
    rows = [counted_rows(task, task.train_length, n_rows, generator) for _ in ("own", "donor")]
    which = torch.randint(n_rows, (number,), generator=generator)
    last = rows[0].shape[1] - ROOM
    columns = torch.randint(task.prefix + len(task.kinds) // 2, last, (2, number), generator=generator)
    keys = torch.rand(number, len(task.kinds), generator=generator)
    about = keys[:, :KINDS].argmax(1)
    kinds = torch.stack([about, keys.scatter(1, about[:, None], 0.0).argmax(1)], 1)
    ids = torch.tensor(task.vocab.encode(task.kinds))[kinds]
    next_ids = ids.repeat(1, ROOM // 2)
    labels = []
    for token_ids, column in zip(rows, columns, strict=True):
        counts = _kind_counts(task, token_ids)[which, column].gather(1, kinds)
        labels.append(task.answer_ids(counts.repeat(1, ROOM // 2) + torch.arange(ROOM) // 2))
    differ = ((labels[0] != labels[1]) & (labels[0] != NOT_SCORED) & (labels[1] != NOT_SCORED)).all(1)
    chosen = differ.nonzero()[:, 0][:n_trials]
    own, donor = (
        memory.after(token_ids)[which[chosen], column[chosen]] for token_ids, column in zip(rows, columns, strict=True)
    )
    own_labels, donor_labels = (answers[chosen] for answers in labels)
    return Trials(own, donor, next_ids[chosen], own_labels, donor_labels, about=about[chosen])


def spliced_trials(task: Task, memory: Remembers, n_trials: int, generator: torch.Generator) -> Trials:
    """For any task: two rows up to some token, then the last tokens of a third; only where right answers differ."""
    number, last = 4 * n_trials, task.train_length + task.prefix - LATER
    if last <= task.prefix + 1:
        raise NotApplicable(f"training rows of {task.train_length} tokens are too short to exchange a memory in them")
    own, donor, third = (counted_rows(task, task.train_length, number, generator) for _ in range(3))
    columns = torch.randint(task.prefix, last, (2, number), generator=generator).tolist()
    next_ids, labels = third[:, -LATER:], []
    for rows, ends in zip((own, donor), columns, strict=True):
        spliced = [torch.cat([row[: end + 1], later]) for row, end, later in zip(rows, ends, next_ids, strict=True)]
        labels.append(torch.stack([task.label(row[None])[0, -LATER:] for row in spliced]))
    scored = (labels[0] != NOT_SCORED) & (labels[1] != NOT_SCORED)
    own_labels, donor_labels = (answers.where(scored, NOT_SCORED) for answers in labels)
    chosen = (own_labels != donor_labels).any(1).nonzero()[:, 0][:n_trials]
    if not len(chosen):
        raise NotApplicable(f"rows of {task.name} have the same answers whatever was before: nothing could be seen")
    vectors = (
        memory.after(rows[chosen])[torch.arange(len(chosen)), torch.tensor(ends)[chosen]]
        for rows, ends in zip((own, donor), columns, strict=True)
    )
    of_own, of_donor = vectors
    about = torch.zeros_like(chosen)
    return Trials(of_own, of_donor, next_ids[chosen], own_labels[chosen], donor_labels[chosen], about)


FORMS: dict[str, Form] = {
    "modular": Form(_modular_sample, _modular_trials),
    "selective": Form(_selective_sample, _selective_trials),
}
