"""Which tokens vote on where a row begins: the position ids of the first tokens are moved, each on its own.

Every token implies a beginning: its own PID minus its place in the row, modulo the base. On a circle with as many
places as the base, a unit vector points there. A *vote* is the weighted sum of these vectors, with one weight per place
in the row; it predicts that answers count from where the sum points.
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
from probes.inputs.equal_tokens import equal_token_row
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating
from training.tasks import Task

FIRST_WATCHED = 16  # answers are watched from this token on: all voters come before it
ROWS_AT_ONCE = 128
LARGEST_MOVE = 10
NOWHERE = -1  # the beginning of an answer that is no number

Steps = Int[np.ndarray, "row voter"]  # by how many places the PID of each voter is moved


@dataclass(frozen=True)
class VotedRows:
    """Rows with moved PIDs, and the beginning that each answer counts from."""

    period: int
    steps: Steps
    beginnings: Int[np.ndarray, "row pos"]  # as places from the true one, modulo the base
    watched: Bool[np.ndarray, "row pos"]  # tokens behind the voters that are answered right with nothing moved

    def part(self, rows: slice) -> "VotedRows":
        """Some of the rows."""
        return VotedRows(self.period, self.steps[rows], self.beginnings[rows], self.watched[rows])

    @property
    def directions(self) -> Complex[np.ndarray, "row"]:
        """The mean of the unit vectors that a row's watched answers count from; 0 if none is watched."""
        vectors = unit_vectors(self.beginnings, self.period) * (self.watched & (self.beginnings != NOWHERE))
        return vectors.sum(1) / self.watched.sum(1).clip(min=1)

    def from_token(self, first: int) -> "VotedRows":
        """The same rows, with only tokens from this one on watched."""
        return replace(self, watched=self.watched & (np.arange(self.watched.shape[1]) >= first))

    def share(self, predicted: Int[np.ndarray, "row"]) -> float:
        """Share of watched answers that count from the predicted beginning of their row; NaN if none is watched."""
        hits = (self.beginnings == predicted[:, None] % self.period)[self.watched]
        return float(hits.mean()) if hits.size else np.nan


def draw_steps(rows: int, voters: int, generator: np.random.Generator) -> Steps:
    """Steps at random: each PID is moved with probability one half, by -4 to 5 places but not by 0."""
    sizes = generator.choice([-4, -3, -2, -1, 1, 2, 3, 4, 5], size=(rows, voters))
    return sizes * (generator.random((rows, voters)) < 0.5)


def run_moved(
    counter: Counter, steps: Steps, length: int | None = None, seed: int = 0, layer: int | None = None
) -> VotedRows:
    """The answers of a modular counter to rows of equal tokens whose first PIDs are moved by these steps.

    With `layer`, no PID is moved. Instead, the keys and values of each of the first tokens in that layer come from the
    same row at other PIDs: all of them moved by that token's step.
    """
    task, _ = task_of_counter(counter)
    if task.period is None:
        raise NotApplicable(f"{task.name} is not modular counting: no beginning is subtracted there")
    length = (length or task.train_length) + task.prefix
    room = counter.cfg.max_position - length - 2 * LARGEST_MOVE
    if np.abs(steps).max(initial=0) > LARGEST_MOVE or room < 0:
        raise CountLensError(
            f"steps of up to {np.abs(steps).max(initial=0)} places in rows of {length} tokens: take steps of at most "
            f"{LARGEST_MOVE} and rows of at most {counter.cfg.max_position - 2 * LARGEST_MOVE}"
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
    """Hooks that replace the first tokens' keys and values by those of the same rows with all PIDs moved."""
    if not isinstance(counter, Transformer):
        raise NotApplicable("keys and values are swapped in transformers")
    names = counter.qkv_hooks(layer)[1:]
    row = equal_token_row(task, still.shape[1] - task.prefix)
    token_ids = row.to(counter.device).expand(still.shape)
    donors: dict[str, Tensor] = {}
    for step in np.unique(steps):
        position_ids = torch.from_numpy(still + step).to(counter.device)
        _, cache = counter.run_with_cache(token_ids, position_ids, names_filter=list(names))
        has_step = torch.from_numpy(steps == step).to(counter.device)
        for name in names:
            part = cache[name][:, : steps.shape[1]]
            donors[name] = torch.where(has_step[..., None, None], part, donors.get(name, part))

    def swap(activations: Tensor, hook: Any) -> Tensor:
        return torch.cat([donors[hook.name], activations[:, steps.shape[1] :]], 1)

    return [(name, swap) for name in names]


def _beginnings(
    counter: Counter, task: Task, pids: Int[np.ndarray, "row pos"], rows_at_once: int = ROWS_AT_ONCE
) -> Int[np.ndarray, "row pos"]:
    """The beginning that each answer counts from, as places from the true one, modulo the base."""
    assert task.period is not None
    length = pids.shape[1]
    row = equal_token_row(task, length - task.prefix)
    position_ids = torch.from_numpy(pids).to(counter.device)
    with evaluating(counter):
        answers = torch.cat(
            [
                counter(row.to(counter.device).expand(part.shape), part).argmax(-1).cpu()
                for part in position_ids.split(rows_at_once)
            ]
        )
    residues = torch.arange(task.period)
    implied = task.answer_ids(torch.arange(length)[:, None] - task.prefix - residues)  # [pos residue]
    fits = answers[..., None] == implied
    return torch.where(fits.any(-1), fits.long().argmax(-1), NOWHERE).numpy()


@dataclass(frozen=True)
class Vote:
    """A vote: the weight of each token."""

    period: int
    weights: Float[np.ndarray, "voter"]

    def point(self, steps: Steps) -> Complex[np.ndarray, "row"]:
        """The weighted sum of the tokens' unit vectors, in each row."""
        return unit_vectors(steps, self.period) @ self.weights

    def predict(self, steps: Steps) -> Int[np.ndarray, "row"]:
        """The beginning that the vote points at, as places from the true one, modulo the base."""
        return np.round(np.angle(self.point(steps)) * self.period / (2 * np.pi)).astype(int) % self.period

    def explains(self, rows: VotedRows) -> float:
        """Share of the variance of the rows' directions that the vote explains; below 0 if their mean explains more."""
        is_watched = rows.watched.any(1)
        if not is_watched.any():
            return np.nan
        directions, votes = rows.directions[is_watched], self.point(rows.steps[is_watched])
        variance = (np.abs(directions - directions.mean()) ** 2).sum()
        return float(1 - (np.abs(directions - votes) ** 2).sum() / variance) if variance > 0 else np.nan

    @property
    def effective_voters(self) -> float:
        """How many voters of equal weight have weights as spread as these: (sum of weights)^2 / sum of squares."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())


def unit_vectors(places: Int[np.ndarray, "*shape"], period: int) -> Complex[np.ndarray, "*shape"]:
    """Unit vectors that point at these places of a circle with `period` places."""
    return np.exp(2j * np.pi * places / period)


def fit_vote(rows: VotedRows, voters: Sequence[int]) -> Vote:
    """The vote whose sums are nearest to the rows' directions; only these voters have a weight."""
    is_watched = rows.watched.any(1)
    if not is_watched.any():
        raise NotApplicable("the counter answers no watched token right, so that no vote can be fitted")
    vectors, directions = (
        unit_vectors(rows.steps[is_watched][:, list(voters)], rows.period),
        rows.directions[is_watched],
    )
    weights = np.zeros(rows.steps.shape[1])
    weights[list(voters)], _ = nnls(
        np.concatenate([vectors.real, vectors.imag]), np.concatenate([directions.real, directions.imag])
    )
    return Vote(rows.period, weights)


def kept_answers(counter: Counter, move: int, tokens: int, rows: int, seed: int = 0) -> float:
    """Share of answers that stay when the PID of a single one of the first tokens is moved by `move`, up or down."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=(tokens * rows, 1))
    steps = np.tile(np.eye(tokens, dtype=int), (rows, 1)) * move * signs
    return run_moved(counter, steps, seed=seed).share(np.zeros(len(steps), dtype=int))


def followed_beginning(counter: Counter, tokens: int, rows: int, seed: int = 0) -> float:
    """Percent of answers that move along when the first tokens are moved together, be they right before or not."""
    generator = np.random.default_rng(seed)
    step = generator.choice([-4, -3, -2, -1, 1, 2, 3, 4, 5], size=(rows, 1))
    moved = run_moved(counter, np.repeat(step, tokens, 1), seed=seed)
    return float(100 * (moved.beginnings[:, FIRST_WATCHED:] == step % moved.period).mean())
