"""The answers to one row of a counterfactual pair, with one patch and without it, token by token."""

from dataclasses import dataclass

import pandas as pd
from jaxtyping import Int
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError, unknown
from probes.inputs.counterfactuals import counterfactual_pair
from probes.patching.engine import DIRECTIONS, patched_logits
from probes.patching.pairs import PER_HEAD
from probes.result import Result, Verdict
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

Words = tuple[str, ...]
MaybeWords = tuple[str | None, ...]  # None at positions that are not scored


@dataclass(frozen=True)
class PatchedRow(Result):
    """The answers to a row with one of its activations replaced by its partner's, and without."""

    site: str
    cell: dict[str, int]  # the chosen ones of layer, pos and head
    tokens: Words
    labels: MaybeWords  # the right answers
    other_tokens: Words  # of the partner, from which the activation comes
    other_labels: MaybeWords
    answers: Words  # without the patch
    patched: Words  # answers with the patch

    @property
    def changed(self) -> tuple[bool, ...]:
        """Whether the patch changes the answer at each position."""
        return tuple(before != after for before, after in zip(self.answers, self.patched, strict=True))

    @property
    def verdict(self) -> Verdict:
        place = " ".join(f"{axis} {index}" for axis, index in self.cell.items())
        what = f"The patch of {self.site}{f' at {place}' if place else ''}"
        if not any(self.changed):
            return Verdict(f"{what} changes no answer.", "another row of the pair, or another cell")
        sentence = f"{what} changes {sum(self.changed)} of {len(self.changed)} answers, first at position "
        before, after = (
            sum(answer == label for answer, label in zip(answers, self.labels, strict=True))
            for answers in (self.answers, self.patched)
        )
        sentence += f"{self.changed.index(True)}; {before} were right before and {after} are after it"
        return Verdict(sentence + ".", "another row of the pair, or another cell")

    def to_frame(self) -> pd.DataFrame:
        """One line per position."""
        names = ("tokens", "labels", "other_tokens", "other_labels", "answers", "patched", "changed")
        columns = {name: list(getattr(self, name)) for name in names}
        return pd.DataFrame({"pos": range(len(self.tokens))} | columns)


def patched_row(
    counter: Counter,
    pair: str,
    site: str,
    direction: str = "denoise",
    *,
    layer: int | None = None,
    pos: int | None = None,
    head: int | None = None,
    row: int = 0,
    batch: int = 16,
    length: int | None = None,
    seed: int = 0,
) -> PatchedRow:
    """The answers to one row with one patch and without; pairs, sites and directions are those of `pair_patch`."""
    if direction not in DIRECTIONS:
        raise unknown("direction", direction, DIRECTIONS)
    rows = counterfactual_pair(pair, counter, batch, seed, length)
    if not 0 <= row < batch:
        raise CountLensError(f"row {row} is outside 0..{batch - 1}: there are {batch} pairs")
    sides = (rows.clean, rows.corrupted)
    donor, receiver = (side.rows(slice(row, row + 1)) for side in (sides if direction == "denoise" else sides[::-1]))
    kind = site.removeprefix(PER_HEAD)
    after = patched_logits(counter, donor, receiver, kind, layer, pos, head)
    with evaluating(counter):
        before = counter(receiver.token_ids, receiver.position_ids)
    cell = {"layer": layer, "pos": pos, "head": head}
    vocab = rows.task.vocab
    return PatchedRow(
        site,
        {axis: index for axis, index in cell.items() if index is not None},
        tuple(vocab.decode(receiver.token_ids[0].tolist())),
        _labels(rows.task, receiver.label_ids[0]),
        tuple(vocab.decode(donor.token_ids[0].tolist())),
        _labels(rows.task, donor.label_ids[0]),
        tuple(vocab.decode(before[0].argmax(-1).tolist())),
        tuple(vocab.decode(after[0].argmax(-1).tolist())),
    )


def _labels(task: Task, label_ids: Int[Tensor, "pos"]) -> MaybeWords:
    """The labels of a row as words."""
    names = task.vocab.decode(label_ids.tolist())
    return tuple(None if label == NOT_SCORED else name for label, name in zip(label_ids.tolist(), names, strict=True))
