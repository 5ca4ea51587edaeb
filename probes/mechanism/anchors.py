"""Which tokens tell a modular counter where its row begins? PIDs of single tokens are moved, and answers watched.

Swapping whole rows cannot tell: the first token's PID, the second's and the mean of all of them move together then.
Here the PID of one token, or those of the first few, are moved while all others stay. An *anchor* is a small causal
model: the distance from the beginning that a counter with this anchor sees at each token, from the PIDs of the row
alone. Its score is how often the counter answers accordingly, over tokens about which the anchors disagree; every kind
of move counts alike. The null is the score of predictions for other rows with the same kind of move (*permuted*).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.counter import Counter
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Interval, bootstrap
from training.evaluate import evaluating
from training.tasks import Task

PositionIds = Int[Tensor, "*row pos"]
Distances = Float[Tensor, "*row pos"]
Shares = Float[np.ndarray, "move row"]

ROWS = 64  # of each kind of move
ROWS_AT_ONCE = 256
LARGEST_MOVE = 9
SINGLE_TOKENS = 8  # the first so many are moved one by one
GROUPS = (2, 3, 5, 8, 12)  # how many of the first tokens are moved together
BEGINNINGS = (3, 5, 9, 15)  # how many of the first tokens vote; odd, so that one of two beginnings has a majority
REACHES = (1, 2, 4, 8)  # tokens over which a vote fades
FIRST_WATCHED = 16  # answers are watched from this token on: all anchors come before it
OWN = "own"
CLEAR = 0.5  # of answers: below this, the best anchor leaves most of them unexplained


@dataclass(frozen=True)
class Anchor:
    """Where a counter takes the row's beginning from."""

    equation: str
    distance: Callable[[PositionIds, int], Distances]  # from the beginning, at every token; the int is the period


def _from_token(index: int, pids: PositionIds, period: int) -> Distances:
    return (pids - pids[..., index : index + 1] + index).double()


def _from_vote(voters: int, pids: PositionIds, period: int) -> Distances:
    """From the beginning that most of the first tokens imply."""
    implied = pids - torch.arange(pids.shape[-1], device=pids.device)
    return (pids - implied[..., :voters].mode(-1, keepdim=True).values).double()


def _from_circular_mean(reach: int, pids: PositionIds, period: int) -> Distances:
    """From the mean, on a circle of `period` places, of the beginnings that all tokens so far imply.

    A token counts the less the later it comes: e times less after every `reach` tokens.
    """
    place = torch.arange(pids.shape[-1], device=pids.device)
    angles = 2 * torch.pi * (pids - place).double() / period
    vectors = torch.polar(torch.exp(-place.double() / reach).expand(angles.shape), angles)
    return pids - vectors.cumsum(-1).angle() * period / (2 * torch.pi)


def _from_mean(pids: PositionIds, period: int) -> Distances:
    """In a row of contiguous PIDs the beginning is as far before the mean as the token is after it."""
    return 2 * (pids - pids.double().cumsum(-1) / torch.arange(1, pids.shape[-1] + 1, device=pids.device))


def _from_counting(pids: PositionIds, period: int) -> Distances:
    return torch.arange(pids.shape[-1], device=pids.device).double().expand(pids.shape)


ANCHORS: dict[str, Anchor] = {
    "first token": Anchor("own - first", partial(_from_token, 0)),
    **{
        f"token {index + 1}": Anchor(f"own - PID of token {index + 1} + {index}", partial(_from_token, index))
        for index in range(1, SINGLE_TOKENS)
    },
    **{
        f"beginning of {voters}": Anchor(f"own - what most of the first {voters} imply", partial(_from_vote, voters))
        for voters in BEGINNINGS
    },
    **{
        f"fading beginning ({reach})": Anchor(
            f"own - circular mean of the implied beginnings, weights fading over {reach} tokens",
            partial(_from_circular_mean, reach),
        )
        for reach in REACHES
    },
    "mean": Anchor("2 (own - mean PID so far)", _from_mean),
    "none (own PID)": Anchor("own", lambda pids, period: pids.double()),
    "none (tokens so far)": Anchor("number of tokens before", _from_counting),
}


@dataclass(frozen=True)
class AnchorScore:
    """How often a counter answers as one with this anchor would."""

    name: str
    equation: str
    accuracy: Interval
    permuted: Interval | None  # the null; None where the predictions are the same for all rows
    by_distance: dict[str, float]  # accuracy by the distance that is implied: below 1, trained, beyond; NaN: never is


@dataclass(frozen=True)
class MoveEffect:
    """What a move of some tokens' PIDs does to the answers."""

    tokens: str
    follows: Interval  # share of answers that move by as many places, as they do if these tokens are the anchor
    changes: Interval  # share of answers that change at all


@dataclass(frozen=True)
class Anchors(Result):
    """Every anchor's score, from the best on, and what each kind of move does."""

    task: str
    right: float  # share of tokens answered right with nothing moved; the others are left out
    anchors: tuple[AnchorScore, ...]
    lead: Interval  # of the best anchor over the next one
    moves: tuple[MoveEffect, ...]
    expected: str | None  # the paper's anchor; None: it names none for such a counter

    @property
    def best(self) -> AnchorScore:
        return self.anchors[0]

    @property
    def stands_out(self) -> bool:
        """Whether the best anchor surely explains more than its null and than every other anchor."""
        null = self.best.permuted
        return self.lead.low > 0 and (null is None or self.best.accuracy.low > null.high)

    @property
    def verdict(self) -> Verdict:
        score = f"{self.best.name} predicts {_percent(self.best.accuracy)} of the answers to moved PIDs"
        if not self.stands_out:
            found = f"No anchor stands out: {score}"
        elif self.best.accuracy.value < CLEAR:
            found = f"Its anchor is described best, and badly, as {self.best.name}: {score}"
        else:
            found = f"Its anchor is {self.best.name}: {score}"
        follows = {move.tokens: move.follows.value for move in self.moves}
        groups = {tokens: share for tokens, share in follows.items() if tokens.startswith("first ")}
        together = max(groups, key=lambda tokens: groups[tokens])
        sentence = (
            f"{found}, {self.anchors[1].name} {self.anchors[1].accuracy.value:.0%}. Answers follow the first token "
            f"alone in {follows['token 1']:.0%}, the {together} in {follows[together]:.0%} of cases."
        )
        agrees = None if self.expected is None else self.stands_out and self.best.name == self.expected
        return Verdict(sentence, "another anchor that predicts the answers to moved PIDs surely better", agrees)

    def to_frame(self) -> pd.DataFrame:
        """One line an anchor."""
        lines = [
            {
                "anchor": score.name,
                "equation": score.equation,
                "accuracy": score.accuracy.value,
                "low": score.accuracy.low,
                "high": score.accuracy.high,
                "permuted": None if score.permuted is None else score.permuted.value,
                **{f"implied distance {name}": share for name, share in score.by_distance.items()},
            }
            for score in self.anchors
        ]
        return pd.DataFrame(lines)

    def moves_frame(self) -> pd.DataFrame:
        """One line a kind of move."""
        lines = [
            {"tokens": move.tokens, "follows": move.follows.value, "low": move.follows.low, "high": move.follows.high}
            | {"changes": move.changes.value}
            for move in self.moves
        ]
        return pd.DataFrame(lines)


def _percent(interval: Interval) -> str:
    return f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"


@dataclass(frozen=True)
class _Moves:
    """Rows with moved PIDs, for every kind of move, and how a counter answers them."""

    kinds: tuple[str, ...]
    pids: Int[Tensor, "move row pos"]
    steps: Int[Tensor, "move row"]  # by how many places PIDs were moved
    answers: Int[Tensor, "move row pos"]
    unmoved: Int[Tensor, "move row pos"]  # the right answers with nothing moved
    watched: Bool[Tensor, "move row pos"]  # answered right with nothing moved, and after the moved tokens


def anchor_probe(counter: Counter, anchors: Mapping[str, Anchor] = ANCHORS, rows: int = ROWS, seed: int = 0) -> Anchors:
    """Which anchor predicts a modular counter's answers when the PIDs of single tokens are moved."""
    task, _ = task_of_counter(counter)
    if task.period is None:
        raise NotApplicable(f"{task.name} is not modular counting: no beginning is subtracted there")
    if counter.ignores_positions:
        raise NotApplicable("this counter ignores position ids, so that none of them is its anchor")
    moves, right = _run_moves(counter, task, rows, seed)
    distances = {name: anchor.distance(moves.pids, task.period).double().round() for name, anchor in anchors.items()}
    predicted = {name: task.answer_ids(distance.long() - task.prefix) for name, distance in distances.items()}
    stacked = torch.stack(list(predicted.values()))
    telling = moves.watched & (stacked != stacked[0]).any(0)
    if not bool(telling.any()):
        raise NotApplicable("it answers too little right to tell a moved answer from an unmoved one")
    share = partial(_share, counts=telling.sum(-1).double().numpy(), seed=seed)
    hits = {name: _hits(answers, moves, telling) for name, answers in predicted.items()}
    scores = [
        AnchorScore(
            name,
            anchor.equation,
            share(hits[name]),
            share(_hits(others, moves, telling)) if bool((others != predicted[name]).any()) else None,
            _by_distance(distances[name], predicted[name] == moves.answers, telling, task),
        )
        for name, anchor in anchors.items()
        for others in [predicted[name].roll(1, 1)]
    ]
    scores.sort(key=lambda score: -score.accuracy.value)
    lead = share(hits[scores[0].name] - hits[scores[1].name])
    is_papers = getattr(counter.cfg, "position", None) in ("ape", "sine") and not task.bos
    return Anchors(
        task.name, right, tuple(scores), lead, _effects(moves, task, seed), "first token" * is_papers or None
    )


def _run_moves(counter: Counter, task: Task, rows: int, seed: int) -> tuple[_Moves, float]:
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
    answers, before = (_answers(counter, token_ids, position_ids) for position_ids in (pids, contiguous))
    right = before == labels
    kinds = (OWN, *(f"token {index + 1}" for index in range(SINGLE_TOKENS)), *(f"first {size}" for size in GROUPS))
    return _Moves(kinds, pids, steps, answers, labels, right & after), float(right[..., task.prefix :].float().mean())


def _move_sets(
    length: int, rows: int, generator: torch.Generator
) -> tuple[Bool[Tensor, "move row pos"], Bool[Tensor, "move row pos"]]:
    """For every kind of move, the tokens whose PIDs are moved, and those whose answers are watched."""
    column = torch.arange(length)
    own = column == torch.randint(FIRST_WATCHED, length, (rows, 1), generator=generator)
    sets = [column == index for index in range(SINGLE_TOKENS)] + [column < size for size in GROUPS]
    moved = torch.stack([own, *(tokens.expand(rows, length) for tokens in sets)])
    later = (column >= FIRST_WATCHED).expand(rows, length)
    return moved, torch.stack([own, *[later] * len(sets)])


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


def _hits(predicted: Int[Tensor, "move row pos"], moves: _Moves, telling: Bool[Tensor, "move row pos"]) -> Shares:
    """How many telling tokens of each row are answered as predicted."""
    return ((predicted == moves.answers) & telling).sum(-1).double().numpy()


def _share(hits: Shares, counts: Shares, seed: int) -> Interval:
    """The share of hits, every kind of move counting alike, and what it lies between when rows are drawn again."""

    def mean_over_kinds(weights: Float[np.ndarray, "sample row"]) -> Float[np.ndarray, "one sample"]:
        # A resample may lack every row of a kind that has something to tell.
        shares = np.ma.masked_invalid(hits @ weights.T / (counts @ weights.T))
        return shares.mean(axis=0).filled(np.nan)[None]

    (interval,) = bootstrap(mean_over_kinds, np.ones(hits.shape[1]), seed)
    return interval


def _by_distance(
    distances: Float[Tensor, "move row pos"],
    hit: Bool[Tensor, "move row pos"],
    telling: Bool[Tensor, "move row pos"],
    task: Task,
) -> dict[str, float]:
    """Accuracy by the distance from the beginning that an anchor implies."""
    counted = distances - task.prefix + 1
    ranges = {
        "below 1": counted < 1,
        "trained": (counted >= 1) & (counted <= task.train_length),
        "beyond": counted > task.train_length,
    }
    return {name: float(hit[telling & within].double().mean()) for name, within in ranges.items()}


def _effects(moves: _Moves, task: Task, seed: int) -> tuple[MoveEffect, ...]:
    """What each kind of move does: a later token sees its beginning move, and the token itself its own place."""
    column = torch.arange(moves.pids.shape[-1])
    effects = []
    for index, kind in enumerate(moves.kinds):
        step = moves.steps[index, :, None] * (1 if kind == OWN else -1)
        followed = task.answer_ids(column - task.prefix + step)
        watched = moves.watched[index]
        counts = watched.sum(-1)[None].double().numpy()
        shares = [
            _share((same & watched).sum(-1)[None].double().numpy(), counts, seed)
            for same in (moves.answers[index] == followed, moves.answers[index] != moves.unmoved[index])
        ]
        effects.append(MoveEffect(kind, *shares))
    return tuple(effects)
