"""Which tokens vote on where a row begins: the position ids of the first tokens are moved, each on its own.

Every token implies a beginning, its own PID minus its place, on a circle of as many places as the base has. A *vote* is
the sum of the unit vectors that point there, each with a weight of the token's place; the counter is said to count from
where the sum points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float, Int
from scipy.optimize import nnls
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError
from models.transformer import Transformer
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating
from training.tasks import Task

FIRST_WATCHED = 16  # answers are watched from this token on: all voters come before it
ROWS_AT_ONCE = 128
LARGEST_MOVE = 10
NOWHERE = -1  # where an answer is no number, so that no beginning is implied

Steps = Int[np.ndarray, "row voter"]  # by how many places the PID of each voter is moved


@dataclass(frozen=True)
class VotedRows:
    """Rows with moved PIDs, and from which beginning each answer counts."""

    period: int
    steps: Steps
    beginnings: Int[np.ndarray, "row pos"]  # residue of the implied beginning; 0 is the true one
    watched: Bool[np.ndarray, "row pos"]  # answered right with nothing moved, and behind the voters

    def part(self, rows: slice) -> "VotedRows":
        """Some of the rows."""
        return VotedRows(self.period, self.steps[rows], self.beginnings[rows], self.watched[rows])

    @property
    def directions(self) -> Complex[np.ndarray, "row"]:
        """Where each row's watched answers count from, on average; 0 where none is watched."""
        vectors = unit_vectors(self.beginnings, self.period) * (self.watched & (self.beginnings != NOWHERE))
        return vectors.sum(1) / self.watched.sum(1).clip(min=1)

    def from_token(self, first: int) -> "VotedRows":
        """The same rows, with only tokens from this one on watched."""
        late = np.arange(self.watched.shape[1]) >= first
        return replace(self, watched=self.watched & late)

    def share(self, predicted: Int[np.ndarray, "row"]) -> float:
        """Share of watched answers that count from the predicted beginning of their row; NaN if none is watched."""
        hits = (self.beginnings == predicted[:, None] % self.period)[self.watched]
        return float(hits.mean()) if hits.size else np.nan


def draw_steps(rows: int, voters: int, generator: np.random.Generator) -> Steps:
    """Each PID is moved with probability one half, by -4 to 5 places but not by 0."""
    sizes = generator.choice([-4, -3, -2, -1, 1, 2, 3, 4, 5], size=(rows, voters))
    return sizes * (generator.random((rows, voters)) < 0.5)


def run_moved(
    counter: Counter, steps: Steps, length: int | None = None, seed: int = 0, layer: int | None = None
) -> VotedRows:
    """How a modular counter answers rows of equal tokens whose first PIDs are moved by these steps.

    With a layer, PIDs stay. Instead, the keys and values of the first tokens in that layer are each those of a row
    that begins so many places elsewhere.
    """
    task, _ = task_of_counter(counter)
    if task.period is None:
        raise NotApplicable(f"{task.name} is not modular counting: no beginning is subtracted there")
    length = (length or task.train_length) + task.prefix
    room = counter.cfg.max_position - length - 2 * LARGEST_MOVE
    if np.abs(steps).max(initial=0) > LARGEST_MOVE or room < 0:
        raise CountLensError(
            f"steps up to {np.abs(steps).max(initial=0)} in rows of {length} tokens: at most {LARGEST_MOVE} places "
            f"fit, and rows of {counter.cfg.max_position - 2 * LARGEST_MOVE}"
        )
    still = LARGEST_MOVE + np.random.default_rng(seed).integers(room + 1, size=(len(steps), 1)) + np.arange(length)
    moved = still.copy()
    moved[:, : steps.shape[1]] += steps
    before = _beginnings(counter, task, still)
    if layer is None:
        after = _beginnings(counter, task, moved)
    else:
        with evaluating(counter), counter.hooks(fwd_hooks=_swap_hooks(counter, task, still, steps, layer)):
            after = _beginnings(counter, task, still, rows_at_once=len(still))
    return VotedRows(task.period, steps, after, (before == 0) & (np.arange(length) >= FIRST_WATCHED + task.prefix))


def _swap_hooks(
    counter: Counter, task: Task, still: Int[np.ndarray, "row pos"], steps: Steps, layer: int
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Hooks that put the first tokens' keys and values of rows which begin elsewhere into the rows that stay."""
    if not isinstance(counter, Transformer):
        raise NotApplicable("keys and values are swapped in transformers")
    names = counter.qkv_hooks(layer)[1:]
    token_ids = _row(task, still.shape[1]).to(counter.device).expand(still.shape)
    donors: dict[str, Tensor] = {}
    for step in np.unique(steps):
        position_ids = torch.from_numpy(still + step).to(counter.device)
        _, cache = counter.run_with_cache(token_ids, position_ids, names_filter=list(names))
        chosen = torch.from_numpy(steps == step).to(counter.device)
        for name in names:
            part = cache[name][:, : steps.shape[1]]
            donors[name] = torch.where(chosen[..., None, None], part, donors.get(name, part))

    def swap(activations: Tensor, hook: Any) -> Tensor:
        return torch.cat([donors[hook.name], activations[:, steps.shape[1] :]], 1)

    return [(name, swap) for name in names]


def _row(task: Task, length: int) -> Int[Tensor, "pos"]:
    return torch.tensor(task.vocab.encode([*task.prefix_tokens, *[task.kinds[0]] * (length - task.prefix)]))


def _beginnings(
    counter: Counter, task: Task, pids: Int[np.ndarray, "row pos"], rows_at_once: int = ROWS_AT_ONCE
) -> Int[np.ndarray, "row pos"]:
    """The beginning, as places from the true one, that each answer counts from."""
    assert task.period is not None
    length = pids.shape[1]
    row = _row(task, length)
    position_ids = torch.from_numpy(pids).to(counter.device)
    with evaluating(counter):
        answers = torch.cat(
            [
                counter(row.to(counter.device).expand(part.shape), part).argmax(-1).cpu()
                for part in position_ids.split(rows_at_once)
            ]
        )
    residues = torch.arange(task.period)
    said = task.answer_ids(torch.arange(length)[:, None] - task.prefix - residues)  # [pos residue]
    fits = answers[..., None] == said
    return torch.where(fits.any(-1), fits.long().argmax(-1), NOWHERE).numpy()


@dataclass(frozen=True)
class Vote:
    """A vote: how much each token counts."""

    period: int
    weights: Float[np.ndarray, "voter"]

    def point(self, steps: Steps) -> Complex[np.ndarray, "row"]:
        """Where the tokens' unit vectors point together, in each row."""
        return unit_vectors(steps, self.period) @ self.weights

    def predict(self, steps: Steps) -> Int[np.ndarray, "row"]:
        """The residue that the vote points at."""
        return np.round(np.angle(self.point(steps)) * self.period / (2 * np.pi)).astype(int) % self.period

    def explains(self, rows: VotedRows) -> float:
        """Share of the variance of where rows count from; below 0 where the rows' mean would do better."""
        asked = rows.watched.any(1)
        if not asked.any():
            return np.nan
        found, said = rows.directions[asked], self.point(rows.steps[asked])
        spread = (np.abs(found - found.mean()) ** 2).sum()
        return float(1 - (np.abs(found - said) ** 2).sum() / spread) if spread > 0 else np.nan

    @property
    def effective_voters(self) -> float:
        """As many voters of equal weight would be as spread."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())


def unit_vectors(places: Int[np.ndarray, "*shape"], period: int) -> Complex[np.ndarray, "*shape"]:
    """Places on a circle of `period` places."""
    return np.exp(2j * np.pi * places / period)


def fit_vote(rows: VotedRows, voters: Sequence[int]) -> Vote:
    """The weights whose votes come nearest to where rows count from; tokens that are no voters have none."""
    asked = rows.watched.any(1)
    if not asked.any():
        raise NotApplicable("it answers too little right to tell a moved answer from an unmoved one")
    votes, found = unit_vectors(rows.steps[asked][:, list(voters)], rows.period), rows.directions[asked]
    weights = np.zeros(rows.steps.shape[1])
    weights[list(voters)] = nnls(np.concatenate([votes.real, votes.imag]), np.concatenate([found.real, found.imag]))[0]
    return Vote(rows.period, weights)


def kept_answers(counter: Counter, move: int, tokens: int, rows: int, seed: int = 0) -> float:
    """Share of answers that stay when the PID of one of the first tokens is moved by so many places, up or down."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=(tokens * rows, 1))
    steps = np.tile(np.eye(tokens, dtype=int), (rows, 1)) * move * signs
    found = run_moved(counter, steps, seed=seed)
    return found.share(np.zeros(len(steps), dtype=int))


def followed_beginning(counter: Counter, tokens: int, rows: int, seed: int = 0) -> float:
    """Percent of answers that move along when the first tokens are moved together, whether right before or not."""
    generator = np.random.default_rng(seed)
    step = generator.choice([-4, -3, -2, -1, 1, 2, 3, 4, 5], size=(rows, 1))
    found = run_moved(counter, np.repeat(step, tokens, 1), seed=seed)
    later = found.beginnings[:, FIRST_WATCHED:]
    return float(100 * (later == step % found.period).mean())
