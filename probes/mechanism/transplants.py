"""A recurrent counter's state as the count itself: transplanted into another row, every later answer goes on from it.

The state after token i of one row replaces the state after token p of another, in all layers or in one; then the other
row goes on. If the state is the count, the answers are those of a row that begins with the one's first i tokens and
goes on with the other's. Whole states of a one-layer RNN must behave so, for they hold all that it knows; it is a
claim about the others, which also look a few inputs back, and about directions: the count should be in few of them,
those along which states follow it, and what is left should not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import NormMatchedPlacebo, SubspaceInterchange, random_basis

from models.counter import Counter, HookList
from models.errors import CountLensError
from models.families import build_counter
from models.hooks import hook_name
from models.recurrent import Recurrent
from probes.inputs.counterfactual_rows import counted_rows
from probes.mechanism.interchange import HOLDS, Basis, Move, span
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Interval, share_interval
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

N_PAIRS = 128
LATER = 10  # tokens after a transplant whose answers are judged
ROWS_AT_ONCE = 32  # some states are large


@dataclass(frozen=True)
class Transplant(Result):
    """One row whose state was replaced, with its answers before and after."""

    tokens: tuple[str, ...]
    column: int  # the token after which the state is replaced
    source_column: int  # the token after which the state was taken, in a row of the same kind
    answers: tuple[str, ...]  # with nothing replaced
    transplanted: tuple[str, ...]  # with the state replaced; the same up to the column before
    predicted: tuple[str | None, ...]  # if the state is the count; None where nothing is scored
    labels: tuple[str | None, ...]  # what is right with nothing replaced

    @property
    def followed(self) -> tuple[bool | None, ...]:
        """From the transplant on, whether the answer is as predicted; None before, and where nothing is scored."""
        pairs = enumerate(zip(self.predicted, self.transplanted, strict=True))
        return tuple(None if at < self.column or said is None else said == got for at, (said, got) in pairs)

    @property
    def verdict(self) -> Verdict:
        judged = [one for one in self.followed if one is not None]
        return Verdict(
            f"With the state of token {self.source_column + 1} at token {self.column + 1}, "
            f"{sum(judged)} of {len(judged)} answers go on from there.",
            "answers that go on from the row's own count",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a token."""
        names = ("tokens", "labels", "answers", "predicted", "transplanted", "followed")
        columns = {name: list(getattr(self, name)) for name in names}
        return pd.DataFrame({"position": range(1, len(self.tokens) + 1)} | columns)


@dataclass(frozen=True)
class StateIsCount(Result):
    """How often the answers after a transplant go on from the transplanted count."""

    task: str
    later: int  # answers judged after each transplant
    whole: Interval  # whole states
    directions: Interval  # only along the directions in which states follow the count
    rest: Interval  # only along all other directions: how often answers go on from the row's own count
    placebo: Interval  # moved as far, in as many random directions
    untrained: Interval  # whole states of an untrained counter
    n_directions: tuple[int, int]  # of the state's

    @property
    def holds(self) -> bool:
        """Whether whole states carry the count, more surely than an untrained counter's do."""
        return self.whole.low >= HOLDS and self.whole.low > self.untrained.high

    @property
    def few(self) -> bool:
        """Whether the count is in its directions and in no other."""
        carried = self.directions.low >= HOLDS and self.directions.low > self.placebo.high
        return carried and self.rest.low >= HOLDS

    @property
    def verdict(self) -> Verdict:
        number, size = self.n_directions
        where = (
            f"{number} of the state's {size} directions ({self.directions.value:.0%}; random ones "
            f"{self.placebo.value:.0%}; with all others replaced {self.rest.value:.0%} of answers stay)"
        )
        if not self.holds:
            return Verdict(
                f"The state is not the count: {self.whole.value:.0%} of the {self.later} answers after a transplant go "
                f"on from it (untrained {self.untrained.value:.0%}).",
                f"surely more than {HOLDS:.0%} of later answers going on from the transplanted count",
            )
        return Verdict(
            f"The state is the count: {self.whole.value:.0%} of the {self.later} answers after a transplant go on from "
            f"it (untrained {self.untrained.value:.0%}). It is {'' if self.few else 'not only '}in {where}.",
            "later answers that go on from the row's own count",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a way of transplanting."""
        ways = ("whole", "directions", "rest", "placebo", "untrained")
        return pd.DataFrame([{"transplanted": way} | vars(getattr(self, way)) for way in ways])


def transplant(
    counter: Counter,
    source_column: int,
    column: int,
    length: int | None = None,
    layer: int | None = None,
    seed: int = 0,
) -> Transplant:
    """One row's answers, from the token at `column` on with the state that another row has after `source_column`.

    In all layers, or in one. Both rows are the task's own, with so many counted tokens.
    """
    task, row, other = _two_rows(counter, length, seed)
    n_pos = row.shape[1]
    for name, value in (("source_column", source_column), ("column", column)):
        if not 0 <= value < n_pos:
            raise CountLensError(f"{name}={value} is outside 0..{n_pos - 1}: the rows have {n_pos} tokens")
    at, taken = torch.tensor([column]), torch.tensor([source_column])
    before = _answers(counter, row)
    after = _answers(counter, row, _edits(counter, row, other, at, taken, layer=layer))
    predicted = _grafted_labels(task, row, other, at, taken)
    return Transplant(
        tokens=tuple(task.vocab.decode(row[0].tolist())),
        column=column,
        source_column=source_column,
        answers=tuple(task.vocab.decode(before[0].tolist())),
        transplanted=tuple(task.vocab.decode(after[0].tolist())),
        predicted=_words(task, predicted[0]),
        labels=_words(task, task.label(row)[0]),
    )


def state_is_count(counter: Counter, pairs: int = N_PAIRS, seed: int = 0) -> StateIsCount:
    """How often answers go on from a transplanted count, over pairs of rows and of tokens, within training lengths."""
    task, row, other = _two_rows(counter, None, seed, pairs)
    later = min(LATER, (row.shape[1] - task.prefix) // 3)
    generator = torch.Generator().manual_seed(seed)
    # What is taken and what follows it are together no longer than rows are in training.
    last = row.shape[1] - later
    at, taken = torch.randint(task.prefix, last, (2, pairs), generator=generator)
    untrained = build_counter(counter.cfg, torch.Generator().manual_seed(seed)).to(counter.device)
    bases = _count_bases(counter, task, seed)
    spaces = [SubspaceInterchange(basis) for basis in bases]
    placebos = [
        NormMatchedPlacebo(space, random_basis(*basis.shape, seed)) for space, basis in zip(spaces, bases, strict=True)
    ]
    others = [_all_but(space) for space in spaces]
    stays = task.label(row)
    goes_on = _grafted_labels(task, row, other, at, taken)

    def share(one: Counter, moves: list[Move] | None, wanted: Int[Tensor, "batch pos"]) -> Interval:
        parts = [
            _answers(one, row[part], _edits(one, row[part], other[part], at[part], taken[part], moves))
            for part in torch.arange(pairs).split(ROWS_AT_ONCE)
        ]
        answers = torch.cat(parts)
        column = torch.arange(row.shape[1])
        after = (column >= at[:, None]) & (column < at[:, None] + later)
        # Where both counts give one answer nothing is told.
        tells = after & (goes_on != stays) & (goes_on != NOT_SCORED) & (stays != NOT_SCORED)
        # The answers after one transplant go together.
        return share_interval((answers == wanted)[tells], independent=int(tells.any(1).sum()))

    return StateIsCount(
        task=task.name,
        later=later,
        whole=share(counter, None, goes_on),
        directions=share(counter, list(spaces), goes_on),
        rest=share(counter, others, stays),
        placebo=share(counter, list(placebos), goes_on),
        untrained=share(untrained, None, goes_on),
        n_directions=(sum(basis.shape[1] for basis in bases), sum(basis.shape[0] for basis in bases)),
    )


def _two_rows(
    counter: Counter, length: int | None, seed: int, rows: int = 1
) -> tuple[Task, Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    if not isinstance(counter, Recurrent):
        raise NotApplicable("an attention counter has no state to transplant: patch its keys and values instead")
    task, _ = task_of_counter(counter)
    if task.name.startswith("first_tok"):
        raise NotApplicable(f"{task.name} counts nothing")
    generator = torch.Generator().manual_seed(seed)
    counted = task.train_length if length is None else length
    row, other = (counted_rows(task, counted, rows, generator) for _ in range(2))
    return task, row, other


def _grafted_labels(
    task: Task,
    row: Int[Tensor, "batch pos"],
    other: Int[Tensor, "batch pos"],
    at: Int[Tensor, "batch"],
    taken: Int[Tensor, "batch"],
) -> Int[Tensor, "batch pos"]:
    """What is right if each row began with another's tokens up to `taken`, and went on with its own after `at`."""
    labels = task.label(row)
    for index, (here, there) in enumerate(zip(at.tolist(), taken.tolist(), strict=True)):
        grafted = torch.cat([other[index, : there + 1], row[index, here + 1 :]])
        labels[index, here:] = task.label(grafted[None])[0, there:]
    return labels


def _edits(
    counter: Counter,
    row: Int[Tensor, "batch pos"],
    other: Int[Tensor, "batch pos"],
    at: Int[Tensor, "batch"],
    taken: Int[Tensor, "batch"],
    moves: list[Move] | None = None,
    layer: int | None = None,
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Hooks that replace the state after `at` by the other row's after `taken`, as a whole or by a move a layer."""
    layers = list(range(counter.cfg.n_layers)) if layer is None else [layer]
    if not set(layers) <= set(range(counter.cfg.n_layers)):
        raise CountLensError(f"layer {layer}: this counter has layers 0..{counter.cfg.n_layers - 1}")
    names = [hook_name("state_step", one) for one in layers]
    different, which = other.unique(dim=0, return_inverse=True)
    states = _states(counter, different, layers)

    def edit(foreign: Tensor, move: Move | None) -> Callable[..., Tensor]:
        def hook(state: Tensor, hook: object) -> Tensor:
            here = at == hook.ctx["pos"]  # type: ignore[attr-defined]
            if not bool(here.any()):
                return state
            chosen = foreign[which[here], taken[here]].reshape(state[here].shape)
            new = state.clone()
            if move is None:
                new[here] = chosen
            else:
                new[here] = move(state[here].flatten(1), chosen.flatten(1)).reshape(chosen.shape)
            return new

        return hook

    ways = [None] * len(layers) if moves is None else [moves[one] for one in layers]
    return [(name, edit(foreign, move)) for name, foreign, move in zip(names, states, ways, strict=True)]


def _states(counter: Counter, rows: Int[Tensor, "batch pos"], layers: list[int]) -> list[Tensor]:
    """The state after every token, as it is handed on: what `hook_state_step` sees."""
    seen: dict[int, list[Tensor]] = {layer: [] for layer in layers}

    def keep(layer: int) -> Callable[..., None]:
        return lambda state, hook: seen[layer].append(state)

    _answers(counter, rows, [(hook_name("state_step", layer), keep(layer)) for layer in layers])
    return [torch.stack(states, 1) for states in seen.values()]


def _answers(counter: Counter, rows: Int[Tensor, "batch pos"], hooks: HookList = ()) -> Int[Tensor, "batch pos"]:
    position_ids = torch.arange(rows.shape[1]).expand(rows.shape)
    with evaluating(counter):
        on = (rows.to(counter.device), position_ids.to(counter.device))
        return counter.run_with_hooks(*on, fwd_hooks=list(hooks)).argmax(-1).cpu()


def _count_bases(counter: Counter, task: Task, seed: int) -> list[Basis]:
    """In each layer, the directions between the mean states of different answers."""
    rows = counted_rows(task, task.train_length, N_PAIRS, torch.Generator().manual_seed(seed + 1)).unique(dim=0)
    labels = task.label(rows)
    scored = labels != NOT_SCORED
    bases = []
    for states in _states(counter, rows, list(range(counter.cfg.n_layers))):
        flat = states.flatten(2)[scored.to(states.device)].double()
        means = torch.stack([flat[labels[scored] == label].mean(0) for label in labels[scored].unique()])
        bases.append(span(means - means.mean(0)))
    return bases


def _all_but(space: SubspaceInterchange) -> Move:
    """Takes everything from the other row but what is in these directions."""
    return lambda own, foreign: space(foreign, own)


def _words(task: Task, labels: Int[Tensor, "pos"]) -> tuple[str | None, ...]:
    return tuple(None if label == NOT_SCORED else task.vocab.decode([label])[0] for label in labels.tolist())
