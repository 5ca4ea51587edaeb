"""Rows in which the PIDs of single tokens are moved, and how often a counter answers them as each anchor predicts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.counter import Counter
from probes.mechanism.anchor_formulas import SINGLE_TOKENS, Anchor
from probes.mechanism.grades import surplus
from probes.result import NotApplicable, task_of_counter
from probes.stats import Interval, bootstrap
from training.evaluate import evaluating
from training.tasks import Task

Shares = Float[np.ndarray, "move row"]

ROWS = 64  # of each kind of move
ROWS_AT_ONCE = 256
LARGEST_MOVE = 9
GROUPS = (2, 3, 5, 8, 12)  # how many of the first tokens are moved together
FIRST_WATCHED = 16  # answers are watched from this token on: all anchors come before it
OWN = "own"
LATE = f"one of tokens {SINGLE_TOKENS + 1} to {FIRST_WATCHED}"
HALVES = (4, 6, 10, 16)  # of how many first tokens half are moved, others in every row: votes are told apart by it
BETWEEN = "a token between"  # after the first ones, before the token that answers


@dataclass(frozen=True)
class MovedRows:
    """Rows with moved PIDs, for every kind of move, and how a counter answers them."""

    kinds: tuple[str, ...]
    pids: Int[Tensor, "move row pos"]
    steps: Int[Tensor, "move row"]  # by how many places PIDs were moved
    answers: Int[Tensor, "move row pos"]
    unmoved: Int[Tensor, "move row pos"]  # the right answers with nothing moved
    watched: Bool[Tensor, "move row pos"]  # answered right with nothing moved, and after the moved tokens


@dataclass(frozen=True)
class AnchorHits:
    """How many telling tokens of each row every anchor predicts, for comparisons on the same rows."""

    moves: MovedRows
    right: float
    distances: dict[str, Float[Tensor, "move row pos"]]
    predicted: dict[str, Int[Tensor, "move row pos"]]
    disputed: Bool[Tensor, "move row pos"]  # where anchors disagree
    telling: Bool[Tensor, "move row pos"]  # of those, the ones within the distances of training
    in_training: Bool[Tensor, "pos"]  # tokens that no move takes out of the distances of training
    hits: dict[str, Shares]
    seed: int

    def share(self, hits: Shares) -> Interval:
        """A share of the telling tokens, with its interval."""
        return share_of_rows(hits, self.telling.sum(-1).double().numpy(), self.seed)

    def score(self, name: str) -> Interval:
        """How often the counter answers as the anchor's formula says."""
        return self.share(self.hits[name])

    def permuted(self, name: str) -> Interval | None:
        """How often it answers as predicted for other rows of the same kind of move; None if nothing differs there."""
        others = self.predicted[name].roll(1, 1)
        changed = bool((others != self.predicted[name]).any())
        return self.share(_hits(others, self.moves, self.telling)) if changed else None

    def worst_kind(self, name: str) -> tuple[str, float]:
        """The kind of move that an anchor explains least, and the surplus there."""
        surpluses = {kind: self._surplus_at(index, name) for index, kind in enumerate(self.moves.kinds)}
        known = {kind: value for kind, value in surpluses.items() if value is not None}
        worst = min(known, key=lambda kind: known[kind])
        return worst, known[worst]

    def _surplus_at(self, index: int, name: str) -> float | None:
        """At one kind of move, the surplus over predictions for other rows where they differ; None: nothing is watched.

        It is no more than the share of all watched answers of trained distances that are as predicted, also of those
        to which no anchor says that anything should happen.
        """
        watched = (self.moves.watched & self.in_training)[index]
        answers, predicted = self.moves.answers[index], self.predicted[name][index]
        others = predicted.roll(1, 0)

        def share(expected: Int[Tensor, "row pos"], among: Bool[Tensor, "row pos"]) -> Interval:
            hits, counts = ((part & among).sum(-1)[None].double().numpy() for part in (answers == expected, among))
            return share_of_rows(hits, counts, self.seed)

        if not bool(watched.any()):
            return None
        low, differ = share(predicted, watched).low, watched & (predicted != others)
        if not bool(differ.any()):
            return low
        return min(low, surplus(share(predicted, differ), [share(others, differ)]))

    def best(self, names: Collection[str]) -> str:
        """Which of these anchors predicts most answers."""
        counts = self.telling.sum((1, 2)).double().numpy()
        return max(names, key=lambda name: float((self.hits[name].sum(1) / counts.clip(min=1))[counts > 0].mean()))

    def lead(self, name: str, others: Collection[str]) -> tuple[str, Interval]:
        """The best of the others, and how much more often than it this anchor is right."""
        other = self.best(others)
        return other, self.share(self.hits[name] - self.hits[other])


def anchor_hits(counter: Counter, anchors: Mapping[str, Anchor], rows: int, seed: int) -> AnchorHits:
    """Runs a counter on rows with moved PIDs, and compares its answers with every anchor's predictions."""
    task, _ = task_of_counter(counter)
    if task.period is None:
        raise NotApplicable(f"{task.name} is not modular counting: no beginning is subtracted there")
    if counter.ignores_positions:
        raise NotApplicable("this counter ignores position ids, so that none of them is its anchor")
    moves, right = _run_moves(counter, task, rows, seed)
    distances = {name: anchor.distance(moves.pids, task.period).double().round() for name, anchor in anchors.items()}
    predicted = {name: task.answer_ids(distance.long() - task.prefix) for name, distance in distances.items()}
    stacked = torch.stack(list(predicted.values()))
    disputed = moves.watched & (stacked != stacked[0]).any(0)
    in_training = torch.arange(moves.pids.shape[-1]) < task.prefix + task.train_length - LARGEST_MOVE
    telling = disputed & in_training
    if not bool(telling.any()):
        raise NotApplicable("it answers too little right to tell a moved answer from an unmoved one")
    predicted = _different(predicted, telling)
    hits = {name: _hits(answers, moves, telling) for name, answers in predicted.items()}
    return AnchorHits(moves, right, distances, predicted, disputed, telling, in_training, hits, seed)


def _different(
    predicted: Mapping[str, Int[Tensor, "move row pos"]], telling: Bool[Tensor, "move row pos"]
) -> dict[str, Int[Tensor, "move row pos"]]:
    """Of anchors that predict the same for all telling tokens, the one that is stated first.

    On a circle of few places a vote that fades at once is the first token's alone.
    """
    first_names: dict[tuple[int, ...], str] = {}
    for name, answers in predicted.items():
        first_names.setdefault(tuple(answers[telling].tolist()), name)
    return {name: predicted[name] for name in first_names.values()}


def _run_moves(counter: Counter, task: Task, rows: int, seed: int) -> tuple[MovedRows, float]:
    """Answers to rows of the longest training length with moved PIDs, and how often those of unmoved rows are right."""
    generator = torch.Generator().manual_seed(seed)
    length = task.train_length + task.prefix
    if length <= FIRST_WATCHED or counter.cfg.max_position < length + 2 * LARGEST_MOVE:
        raise NotApplicable(f"rows of {length} tokens are too short, or leave no room to move PIDs")
    moved, after = _move_sets(length, rows, generator)
    shape = (len(moved), rows)
    room = counter.cfg.max_position - length - 2 * LARGEST_MOVE
    shifts = LARGEST_MOVE + torch.randint(room + 1, shape, generator=generator)
    steps = torch.randint(1, LARGEST_MOVE + 1, shape, generator=generator)
    steps = torch.where(torch.rand(shape, generator=generator) < 0.5, steps, -steps)
    contiguous = shifts[..., None] + torch.arange(length)
    pids = contiguous + steps[..., None] * moved
    token_ids = torch.tensor(task.vocab.encode([*task.prefix_tokens, *[task.kinds[0]] * task.train_length]))
    labels = task.label(token_ids[None])[0].expand(pids.shape)
    answers = _answers(counter, token_ids, pids)
    different, which = shifts.unique(return_inverse=True)  # rows with nothing moved differ by their shift alone
    before = _answers(counter, token_ids, (different[:, None] + torch.arange(length))[None])[0][which]
    right = before == labels
    single = (f"token {index + 1}" for index in range(SINGLE_TOKENS))
    groups = (f"first {size}" for size in GROUPS)
    kinds = (OWN, *single, *groups, *(f"half of the first {size}" for size in HALVES), LATE, BETWEEN)
    return MovedRows(kinds, pids, steps, answers, labels, right & after), float(
        right[..., task.prefix :].float().mean()
    )


def _move_sets(
    length: int, rows: int, generator: torch.Generator
) -> tuple[Bool[Tensor, "move row pos"], Bool[Tensor, "move row pos"]]:
    """For every kind of move, the tokens whose PIDs are moved, and those whose answers are watched."""
    column = torch.arange(length)

    def draw_one(first: int, last: int) -> Bool[Tensor, "row pos"]:
        return column == torch.randint(first, last, (rows, 1), generator=generator)

    own = draw_one(FIRST_WATCHED, length)
    sets = [column == index for index in range(SINGLE_TOKENS)] + [column < size for size in GROUPS]
    late = draw_one(SINGLE_TOKENS, FIRST_WATCHED)
    orders = torch.rand(rows, length, generator=generator)
    halves = [orders.masked_fill(column >= size, 2.0).argsort(1).argsort(1) < size // 2 for size in HALVES]
    between = draw_one(FIRST_WATCHED, length)
    watched_later = (column >= FIRST_WATCHED).expand(rows, length)
    watched_after = between.cumsum(1).bool() & ~between
    moved = torch.stack([own, *(tokens.expand(rows, length) for tokens in sets), *halves, late, between])
    return moved, torch.stack([own, *[watched_later] * (len(moved) - 2), watched_after])


def _answers(
    counter: Counter, token_ids: Int[Tensor, "pos"], position_ids: Int[Tensor, "move row pos"]
) -> Int[Tensor, "move row pos"]:
    flat = position_ids.flatten(0, 1).to(counter.device)
    with evaluating(counter):
        chunks = [
            counter(token_ids.to(counter.device).expand(chunk.shape), chunk).argmax(-1).cpu()
            for chunk in flat.split(ROWS_AT_ONCE)
        ]
    return torch.cat(chunks).unflatten(0, position_ids.shape[:2])


def _hits(predicted: Int[Tensor, "move row pos"], moves: MovedRows, telling: Bool[Tensor, "move row pos"]) -> Shares:
    """How many telling tokens of each row are answered as predicted."""
    return ((predicted == moves.answers) & telling).sum(-1).double().numpy()


def share_of_rows(hits: Shares, counts: Shares, seed: int) -> Interval:
    """The share of hits, in which every kind of move counts alike, with its bootstrap interval over rows."""

    def mean_over_kinds(weights: Float[np.ndarray, "sample row"]) -> Float[np.ndarray, "one sample"]:
        # A resample may lack every row of a kind that has something to tell.
        shares = np.ma.masked_invalid(hits @ weights.T / (counts @ weights.T))
        return shares.mean(axis=0).filled(np.nan)[None]

    (interval,) = bootstrap(mean_over_kinds, np.ones(hits.shape[1]), seed)
    return interval
