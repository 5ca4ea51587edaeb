"""Pairs of rows that differ in one thing, for patching and interchange. Each says what it changes and what it holds.

A row has these variables:

    shift       PID of the row's first token             length   how many tokens are counted
    positions   PIDs of the shared tokens                tokens   the shared tokens
    bos         whether the row begins with bos          labels   the right answers at the shared tokens
    start       the number to count on from

*Shared* tokens are the counted tokens that both rows have. Every variable of the task's rows is either changed in all
rows of a pair or held in all of them. Rows have no padding. If clean and corrupted rows have the same length, a column
means the same token in both. If not (one token more or fewer, bos dropped), the shared tokens are in other columns of
the corrupted row, at the same PIDs.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from models.counter import Counter
from models.errors import unknown
from probes.inputs.counterfactual_rows import (
    choose,
    counted_rows,
    has_equal_elsewhere,
    kind_counts,
    kinds_with_room,
    n_counted,
    n_shifts,
    shifted_rows,
    swap_into_column,
)
from probes.result import NotApplicable, task_of_counter
from training.batches import Batch
from training.tasks import Task

VARIABLES = ("shift", "positions", "bos", "start", "length", "tokens", "labels")


@dataclass(frozen=True)
class Pair:
    """Clean and corrupted rows, and the variables in which they differ."""

    name: str  # key of PAIRS
    task: Task
    clean: Batch
    corrupted: Batch
    changes: tuple[str, ...]  # variables that differ in every row
    holds: tuple[str, ...]  # variables that differ in none
    shared: tuple[int, int]  # column of the first shared token in clean and in corrupted rows

    @property
    def same_length(self) -> bool:
        """Whether clean and corrupted rows have the same number of tokens, as patching requires."""
        return self.clean.token_ids.shape == self.corrupted.token_ids.shape

    def to(self, device: torch.device) -> "Pair":
        """The same pair on a device."""
        return replace(self, clean=self.clean.to(device), corrupted=self.corrupted.to(device))


class MakePair(Protocol):
    """A function that returns a pair, or raises NotApplicable with the reason why the task has no such pair.

    No row has more than `length` counted tokens; by default it is the task's usual length.
    """

    def __call__(self, task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair: ...


def counterfactual_pair(name: str, counter: Counter, batch: int = 32, seed: int = 0, length: int | None = None) -> Pair:
    """The pair of this name for the counter's task, on its device. Raises NotApplicable if there is none."""
    if name not in PAIRS:
        raise unknown("pair", name, PAIRS)
    task, _ = task_of_counter(counter)
    room = 0 if counter.has_positions else task.longest_row + 1
    pair = PAIRS[name](task, max(room, counter.cfg.max_position), batch, seed, length)
    ignores = counter.ignores_positions or not counter.has_positions
    if ignores and set(pair.changes) <= {"shift", "positions"}:
        raise NotApplicable(f"this counter ignores position ids: the two rows of the pair {name} are one row to it")
    return pair.to(counter.device)


def shift(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """The same tokens at another shift. In modular counting, the two shifts also differ modulo the base."""
    generator = torch.Generator().manual_seed(seed)
    token_ids = counted_rows(task, n_counted(task, length), batch, generator)
    room = n_shifts(task, token_ids.shape[1], max_position)
    if room < 2:
        raise NotApplicable(
            f"rows of {token_ids.shape[1]} tokens have one shift at max_position={max_position}: give a smaller length"
        )
    clean_shifts = torch.randint(room, (batch,), generator=generator)
    distance = torch.arange(room) - clean_shifts[:, None]
    corrupted_shifts = choose(distance % (task.period or room) != 0, generator)
    clean, corrupted = (shifted_rows(task, token_ids, shifts) for shifts in (clean_shifts, corrupted_shifts))
    return _make_pair("shift", task, clean, corrupted, ("shift", "positions"))


def start(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """Another start number, so that every count changes by the same amount."""
    counted = n_counted(task, length)
    starts = task.starts(counted)
    if not task.start_tokens:
        raise NotApplicable(f"rows of {task.name} have no start number")
    if len(starts) < 2:
        raise NotApplicable(f"rows of {task.name} with {counted} counted tokens have fewer than two start numbers")
    generator = torch.Generator().manual_seed(seed)
    token_ids = counted_rows(task, counted, batch, generator)
    other = token_ids.clone()
    step = torch.randint(1, len(starts), (batch,), generator=generator)
    other[:, 0] = starts[0] + (token_ids[:, 0] - starts[0] + step) % len(starts)
    shifts = _draw_shifts(task, token_ids, max_position, generator)
    return _make_pair(
        "start", task, shifted_rows(task, token_ids, shifts), shifted_rows(task, other, shifts), ("start", "labels")
    )


def one_more(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """One more counted token at the front of the corrupted row; the others keep their PIDs, and counts grow by one."""
    generator = torch.Generator().manual_seed(seed)
    longer = counted_rows(task, n_counted(task, length), batch, generator)
    # The first token's kind must occur again: otherwise no other count would change.
    longer = swap_into_column(longer, has_equal_elsewhere(longer, task), task.prefix, generator)
    shifts = _draw_shifts(task, longer, max_position, generator)
    shorter = torch.cat([longer[:, : task.prefix], longer[:, task.prefix + 1 :]], 1)
    clean, corrupted = shifted_rows(task, shorter, shifts + 1), shifted_rows(task, longer, shifts)
    shared = (task.prefix, task.prefix + 1)
    return _make_pair("one_more", task, clean, corrupted, ("shift", "length", "labels"), shared)


def one_fewer(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """The corrupted row lacks the first counted token; the others keep their PIDs, and counts fall by one."""
    pair = one_more(task, max_position, batch, seed, length)
    return replace(pair, name="one_fewer", clean=pair.corrupted, corrupted=pair.clean, shared=pair.shared[::-1])


def swap(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """One token has another kind, in the same column of all rows: the last token counts one more or one fewer."""
    if len(task.kinds) < 2:
        raise NotApplicable(f"{task.name} does not count kinds of tokens apart")
    generator = torch.Generator().manual_seed(seed)
    row = counted_rows(task, n_counted(task, length), batch, generator)
    last = row.shape[1] - 1
    row = swap_into_column(row, has_equal_elsewhere(row, task), last, generator)
    alike = row == row[:, -1:]
    alike[:, last] = False
    column = int(torch.randint(task.prefix, last, (), generator=generator))
    row = swap_into_column(row, alike, column, generator)
    kind_ids = torch.tensor(task.vocab.encode(task.kinds))
    other_kind = kind_ids != row[:, -1:]
    other = row.clone()
    other[:, column] = kind_ids[choose(other_kind & kinds_with_room(row, task), generator)]
    shifts = _draw_shifts(task, row, max_position, generator)
    counts_more = torch.rand(batch, 1, generator=generator) < 0.5
    clean, corrupted = (
        shifted_rows(task, torch.where(counts_more, *tokens), shifts) for tokens in ((row, other), (other, row))
    )
    return _make_pair("swap", task, clean, corrupted, ("tokens", "labels"))


def bos_dropped(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """The same row with bos and without it; PIDs, tokens and counts of the other tokens stay the same."""
    _need_bos(task)
    generator = torch.Generator().manual_seed(seed)
    token_ids = counted_rows(task, n_counted(task, length), batch, generator)
    shifts = _draw_shifts(task, token_ids, max_position, generator)
    clean = shifted_rows(task, token_ids, shifts)
    corrupted = shifted_rows(replace(task, bos=False), token_ids[:, 1:], shifts + 1)
    return _make_pair("bos_dropped", task, clean, corrupted, ("shift", "bos"), (1, 0))


def bos_replaced(task: Task, max_position: int, batch: int, seed: int, length: int | None = None) -> Pair:
    """A counted token in place of bos: the rows have the same length, and counts grow by one."""
    _need_bos(task)
    generator = torch.Generator().manual_seed(seed)
    token_ids = counted_rows(task, n_counted(task, length) - 1, batch, generator)
    other = token_ids.clone()
    # A kind that occurs later in the row, and of which the row may have one more.
    kind = choose((kind_counts(token_ids, task) > 0) & kinds_with_room(token_ids, task), generator)
    other[:, 0] = torch.tensor(task.vocab.encode(task.kinds))[kind]
    shifts = _draw_shifts(task, token_ids, max_position, generator)
    clean, corrupted = shifted_rows(task, token_ids, shifts), shifted_rows(replace(task, bos=False), other, shifts)
    return _make_pair("bos_replaced", task, clean, corrupted, ("bos", "length", "labels"))


PAIRS: dict[str, MakePair] = {
    "shift": shift,
    "start": start,
    "one_more": one_more,
    "one_fewer": one_fewer,
    "swap": swap,
    "bos_dropped": bos_dropped,
    "bos_replaced": bos_replaced,
}


def _make_pair(
    name: str,
    task: Task,
    clean: Batch,
    corrupted: Batch,
    changes: tuple[str, ...],
    shared: tuple[int, int] | None = None,
) -> Pair:
    """The pair with everything that it does not change listed as held."""
    has = {"bos": task.bos, "start": task.start_tokens > 0}
    holds = tuple(variable for variable in VARIABLES if variable not in changes and has.get(variable, True))
    return Pair(name, task, clean, corrupted, changes, holds, shared or (task.prefix, task.prefix))


def _draw_shifts(
    task: Task, token_ids: Int[Tensor, "batch pos"], max_position: int, generator: torch.Generator
) -> Int[Tensor, "batch"]:
    """A random shift per row."""
    n_rows, n_pos = token_ids.shape
    return torch.randint(n_shifts(task, n_pos, max_position), (n_rows,), generator=generator)


def _need_bos(task: Task) -> None:
    """Refuses a task whose rows do not begin with bos."""
    if not task.bos:
        other = ": its variant with bos does" if task.takes_bos else ""
        raise NotApplicable(f"rows of this {task.name} do not begin with bos{other}")
