"""Transplants of what a recurrent counter remembers: all of it in one row, and part by part over many.

With the memory after token i of a donor row put after token p of another row, that row goes on from there. Whole
memories must do so: what follows is, to rounding, what follows in a row that begins with the donor's first i tokens. So
it shows how well the counter counts, and nothing else. What can come out either way is a transplant of one part: the
state without Mamba's window, one layer of several. Where two memories differ in no other part, that is the whole memory
again, and not testable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError
from models.recurrent import Recurrent
from probes.inputs.counterfactual_rows import counted_rows
from probes.mechanism.memory import CounterMemory, Part, Remembers, Vectors
from probes.mechanism.memory_claims import FORCED, difference, edit_scores, mean_score
from probes.mechanism.memory_directions import MemorySpace
from probes.mechanism.memory_trials import FORMS, Trials, spliced_trials
from probes.result import Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Interval
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

N_TRIALS = 128


@dataclass(frozen=True)
class Transplant(Result):
    """One row whose memory was replaced, with its answers before and after."""

    tokens: tuple[str, ...]
    column: int  # the token after which the memory is replaced
    source_column: int  # the token after which the memory was taken, in a row of the same kind
    answers: tuple[str, ...]  # with nothing replaced
    transplanted: tuple[str, ...]  # with the memory replaced; the same up to the column
    predicted: tuple[str | None, ...]  # if the memory is the count; None where nothing is scored
    labels: tuple[str | None, ...]  # what is right with nothing replaced

    @property
    def followed(self) -> tuple[bool | None, ...]:
        """After the transplant, whether the answer is as predicted; None before, and where nothing is scored."""
        pairs = enumerate(zip(self.predicted, self.transplanted, strict=True))
        return tuple(
            None if at <= self.column or predicted is None else predicted == answer for at, (predicted, answer) in pairs
        )

    @property
    def verdict(self) -> Verdict:
        as_predicted = [follows for follows in self.followed if follows is not None]
        return Verdict(
            f"With the memory of token {self.source_column + 1} at token {self.column + 1}, "
            f"{sum(as_predicted)} of {len(as_predicted)} later answers go on from there.",
            "answers that go on from the row's own count",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per token."""
        names = ("tokens", "labels", "answers", "predicted", "transplanted", "followed")
        columns = {name: list(getattr(self, name)) for name in names}
        return pd.DataFrame({"position": range(1, len(self.tokens) + 1)} | columns)


@dataclass(frozen=True)
class PartTransplant:
    """What one part of the memory does, taken from the donor alone, and left behind alone."""

    part: Part
    alone: Interval  # answers that go on from the donor's count with this part the donor's
    without: Interval  # ... with every part but this one the donor's
    forced: str  # why nothing can be learnt of it; empty where something can

    @property
    def margin(self) -> Interval:
        """How much more often answers follow this part than all other parts."""
        return difference(self.alone, self.without)


@dataclass(frozen=True)
class MemoryParts(Result):
    """Which part of the memory later answers follow."""

    task: str
    trials: int
    whole: Interval  # all of the donor's memory: forced, so that it is only the ceiling
    parts: tuple[PartTransplant, ...]

    @property
    def headline(self) -> Headline:
        measure = "answers that follow this part alone, minus all but it (share)"
        testable = [part for part in self.parts if not part.forced]
        if len(self.parts) == 1 or not testable:
            return Headline("not testable", measure)
        best = max(testable, key=lambda part: part.margin.value)
        return Headline.of(best.part.label if self.holders else "no part alone", measure, best.margin)

    @property
    def holders(self) -> list[PartTransplant]:
        """The parts that answers surely follow more often than all other parts together, the surest first."""
        holders = [part for part in self.parts if not part.forced and part.margin.low > 0]
        return sorted(holders, key=lambda part: -part.margin.value)

    @property
    def verdict(self) -> Verdict:
        ceiling = f"Whole memories make {self.whole.value:.0%} of answers go on from the donor's count, as they must"
        if len(self.parts) == 1:
            return Verdict(
                f"Not testable: the memory has one part, the {self.parts[0].part.label}. {ceiling}.",
                "a family that remembers more than a state, or more layers",
            )
        testable = [part for part in self.parts if not part.forced]
        numbers = "; ".join(
            f"{part.part.label} {part.alone.value:.0%} alone, {part.without.value:.0%} with all but it "
            f"({100 * part.margin.value:+.0f} points [{100 * part.margin.low:.0f}, {100 * part.margin.high:.0f}])"
            for part in testable
        )
        no_holder = "" if self.holders or not testable else " No part alone is followed more often than all but it."
        forced = [part.part.label for part in self.parts if part.forced]
        untested = f" Not testable, as rows differ in hardly anything else: {', '.join(forced)}." if forced else ""
        return Verdict(
            f"{ceiling}. Of its parts: {numbers or 'none can be tested'}.{no_holder}{untested}",
            "another part that answers follow more often",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per part."""
        return pd.DataFrame(
            [
                {
                    "layer": part.part.layer,
                    "part": part.part.name,
                    "size": part.part.stop - part.part.start,
                    "not_testable": part.forced,
                    "alone": part.alone.value,
                    "alone_low": part.alone.low,
                    "alone_high": part.alone.high,
                    "without": part.without.value,
                    "without_low": part.without.low,
                    "without_high": part.without.high,
                    "whole": self.whole.value,
                }
                for part in self.parts
            ]
        )


def transplant(
    counter: Counter,
    source_column: int,
    column: int,
    length: int | None = None,
    layer: int | None = None,
    seed: int = 0,
) -> Transplant:
    """One row's answers, after the token at `column` with the memory that another row has after `source_column`.

    In all layers, or in one. Both rows are the task's own, with so many counted tokens.
    """
    memory = CounterMemory(counter)
    task, row, other = _two_rows(counter, length, seed)
    n_pos = row.shape[1]
    for name, value in (("source_column", source_column), ("column", column)):
        if not 0 <= value < n_pos:
            raise CountLensError(f"{name}={value} is outside 0..{n_pos - 1}: the rows have {n_pos} tokens")
    parts = [part for part in memory.parts if layer in (None, part.layer)]
    if not parts:
        raise CountLensError(f"layer {layer}: this counter has layers 0..{counter.cfg.n_layers - 1}")
    before = _answers(counter, row)
    own, donor = memory.after(row)[:, column], memory.after(other)[:, source_column]
    after = before.clone()
    if column + 1 < n_pos:
        after[:, column + 1 :] = memory.go_on(_with_parts(own, donor, parts), row[:, column + 1 :])
    grafted = task.label(torch.cat([other[:, : source_column + 1], row[:, column + 1 :]], 1))
    labels = task.label(row)
    predicted = torch.cat([labels[:, : column + 1], grafted[:, source_column + 1 :]], 1)
    return Transplant(
        tokens=tuple(task.vocab.decode(row[0].tolist())),
        column=column,
        source_column=source_column,
        answers=tuple(task.vocab.decode(before[0].tolist())),
        transplanted=tuple(task.vocab.decode(after[0].tolist())),
        predicted=_words(task, predicted[0]),
        labels=_words(task, labels[0]),
    )


def memory_parts(counter: Counter, trials: int = N_TRIALS, seed: int = 0) -> MemoryParts:
    """Which part of a recurrent counter's memory later answers follow, over pairs of memories with other counts."""
    task, _ = task_of_counter(counter)
    return parts_of_memory(task, CounterMemory(counter), trials, seed)


def parts_of_memory(task: Task, memory: Remembers, trials: int = N_TRIALS, seed: int = 0) -> MemoryParts:
    """The same as `memory_parts`, for anything that remembers."""
    draw = FORMS[task.form].trials if task.form in FORMS else spliced_trials
    pairs = draw(task, memory, trials, torch.Generator().manual_seed(seed))
    whole = mean_score(_follows(memory, pairs, pairs.donor))
    parts = tuple(_part_transplant(memory, pairs, part) for part in memory.parts)
    return MemoryParts(task.name, len(pairs), whole, parts)


def _part_transplant(memory: Remembers, trials: Trials, part: Part) -> PartTransplant:
    others = [other for other in memory.parts if other != part]
    alone = _with_parts(trials.own, trials.donor, [part])
    without = _with_parts(trials.own, trials.donor, others)
    space = MemorySpace.of(torch.cat([trials.own, trials.donor]))
    apart = space.distance(trials.own, trials.donor).clamp(min=1e-30)
    forced = ""
    if float((space.distance(alone, trials.donor) / apart).median()) < FORCED:
        forced = "memories differ in no other part"
    elif float((space.distance(without, trials.donor) / apart).median()) < FORCED:
        forced = "memories do not differ in it"
    by_alone, by_others = (mean_score(_follows(memory, trials, edit)) for edit in (alone, without))
    return PartTransplant(part, by_alone, by_others, forced)


def _follows(memory: Remembers, trials: Trials, edit: Vectors) -> Tensor:
    return edit_scores(memory, trials, [edit], trials.donor_labels)[0]


def _with_parts(own: Vectors, donor: Vectors, parts: Sequence[Part]) -> Vectors:
    """A memory with these parts of another."""
    new = own.clone()
    for part in parts:
        new[:, part.start : part.stop] = donor[:, part.start : part.stop]
    return new


def _two_rows(
    counter: Counter, length: int | None, seed: int
) -> tuple[Task, Int[Tensor, "1 pos"], Int[Tensor, "1 pos"]]:
    task, _ = task_of_counter(counter)
    if task.name.startswith("first_tok"):
        raise NotApplicable(f"{task.name} counts nothing")
    generator = torch.Generator().manual_seed(seed)
    counted = task.train_length if length is None else length
    row, other = (counted_rows(task, counted, 1, generator) for _ in range(2))
    return task, row, other


def _answers(counter: Counter, rows: Int[Tensor, "row pos"]) -> Int[Tensor, "row pos"]:
    assert isinstance(counter, Recurrent)
    with evaluating(counter):
        return counter(rows.to(counter.device), torch.zeros_like(rows).to(counter.device)).argmax(-1).cpu()


def _words(task: Task, labels: Int[Tensor, "pos"]) -> tuple[str | None, ...]:
    return tuple(None if label == NOT_SCORED else task.vocab.decode([label])[0] for label in labels.tolist())
