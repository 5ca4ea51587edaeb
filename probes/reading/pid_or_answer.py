"""Do activations follow the position id, or the answer? In a row that begins at PID 0 the two are equal modulo m.

Rows of equal tokens at many shifts tell them apart: the PID is shift plus column, the answer depends on the column
alone. A block of m shifts by m columns contains every pair of PID and answer (modulo m) once. As in a two-way analysis
of variance, what varies in a block has three parts: one that depends on the PID, one that depends on the answer, and
one that depends on both together (*two-way*; a code of the shift modulo m is of this kind, since shift = PID - answer).

A code repeats in every block. So each part is measured by how well those blocks agree that share no shift, no column
and no PID. Noise, drift along single rows, curves over columns and a table of PIDs do not agree between such blocks.
Drift with periods of two rounds or more is removed first. Shares are of the variance that is left. Intervals are the
wider of two jackknife intervals, over rounds of shifts and over rounds of columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from models.counter import Counter
from probes.inputs.equal_tokens import n_untested
from probes.reading.pca import ROUNDING
from probes.result import NotApplicable
from probes.sites import Site, site_activations
from probes.stats import Interval, Intervals, jackknife
from training.tasks import Task

ROUNDS = 4  # of shifts, at most: more of them only cost time
LEAST_ROUNDS = 3  # of shifts and of columns, for an interval
LEAST_SHARE = 0.1  # of the variance: a variable that explains less is not held

Grid = Float[np.ndarray, "shift column d"]
Blocks = Float[np.ndarray, "shift_round column_round pid answer d"]
Held = Literal["PID", "answer", "both", "two-way", "neither"]


@dataclass(frozen=True)
class Separation:
    """The shares of a site's variance that each variable explains; about 0 for a variable that it does not hold."""

    pid: Interval  # explained by the PID modulo m
    answer: Interval  # explained by the answer
    two_way: Interval  # explained by both together, beyond the sum of the two

    @property
    def held(self) -> Held:
        """The variable that the site surely holds; `two-way` if both together explain more than each alone."""
        pid, answer, two_way = (
            share.low > 0 and share.value >= LEAST_SHARE for share in (self.pid, self.answer, self.two_way)
        )
        if two_way and self.two_way.value > max(self.pid.value, self.answer.value):
            return "two-way"
        if pid and answer:
            return "both"
        return "PID" if pid else "answer" if answer else "neither"

    def say(self) -> str:
        """The three shares as text."""
        return f"PID {self.pid.value:.2f}, answer {self.answer.value:.2f}, two-way {self.two_way.value:.2f}"


def pid_or_answer(counter: Counter, task: Task, sites: Sequence[Site]) -> dict[Site, Separation]:
    """For each site the shares of PID and answer, on rows of the training length at many shifts."""
    if task.period is None or not counter.has_positions:
        raise NotApplicable("only modular counters with position ids have both a PID and an answer modulo m")
    period, n_tokens = task.period, task.prefix + task.train_length
    start = task.prefix + n_untested(task)
    shift_rounds = min(ROUNDS, (counter.cfg.max_position - n_tokens) // period)
    column_rounds = (n_tokens - start) // period
    if min(shift_rounds, column_rounds) < LEAST_ROUNDS:
        raise NotApplicable(
            f"PID and answer are told apart by {LEAST_ROUNDS} rounds of shifts and of tokens, {LEAST_ROUNDS * period} "
            f"of each; max_position={counter.cfg.max_position} and rows of {n_tokens} tokens leave fewer"
        )
    shifts = torch.arange(shift_rounds * period)[:, None]
    tokens = [*task.prefix_tokens, *[task.kinds[0]] * task.train_length]
    token_ids = torch.tensor(task.vocab.encode(tokens), device=counter.device).expand(len(shifts), -1)
    position_ids = (shifts + torch.arange(n_tokens)).to(counter.device)
    rows = site_activations(counter, token_ids, position_ids, sites)
    end = start + column_rounds * period
    return {site: separate(x[:, start:end], period) for site, x in rows.items()}


def separate(x: Grid, period: int) -> Separation:
    """The shares of PID, answer and both together, in activations over whole rounds of shifts and columns."""
    x = x.astype(np.float64)
    rest = without_drift(x, period)
    if (rest**2).sum() <= ROUNDING**2 * (x**2).sum():
        nothing = Interval(0.0, 0.0, 0.0)
        return Separation(nothing, nothing, nothing)
    agreement, size = block_agreement(in_blocks(rest, period))
    every_shift, every_column = (np.arange(number) for number in size.shape)
    over_shifts = jackknife(lambda kept: _shares(agreement, size, kept, every_column), len(every_shift))
    over_columns = jackknife(lambda kept: _shares(agreement, size, every_shift, kept), len(every_column))
    low, high = np.minimum(over_shifts.low, over_columns.low), np.maximum(over_shifts.high, over_columns.high)
    return Separation(*Intervals(over_shifts.value, low, high))


def in_blocks(x: Grid, period: int) -> Blocks:
    """The activations in blocks of m shifts by m columns, indexed by PID modulo m and by answer."""
    rounds = x.reshape(x.shape[0] // period, period, x.shape[1] // period, period, -1).swapaxes(1, 2)
    answers, shifts = np.meshgrid(np.arange(period), np.arange(period))
    blocks = np.empty_like(rounds)
    blocks[:, :, (shifts + answers) % period, answers] = rounds
    return blocks


def without_drift(x: Grid, period: int) -> Grid:
    """The activations without their mean and without slow variation over columns or PIDs."""
    drift = _slow_waves(x.shape[0], x.shape[1], period)
    flat = x.reshape(len(drift), -1)
    return (flat - drift @ (drift.T @ flat)).reshape(x.shape)


@lru_cache(maxsize=8)
def _slow_waves(n_shifts: int, n_columns: int, period: int) -> Float[np.ndarray, "token wave"]:
    """An orthonormal basis of drifts over columns and PIDs: a constant, ramps, and waves of two rounds or more."""
    column, shift = np.meshgrid(np.arange(n_columns), np.arange(n_shifts))
    waves = [np.ones((column.size, 1))]
    for place in (column.ravel(), (shift + column).ravel()):
        middle = (place + 0.5) / (place.max() + 1)
        number = (place.max() + 1) // period
        waves += [middle[:, None] - 0.5, np.cos(np.pi * np.outer(middle, np.arange(1, number + 1)))]
    basis, sizes, _ = np.linalg.svd(np.hstack(waves), full_matrices=False)
    return basis[:, sizes > ROUNDING * sizes[0]]


def block_agreement(
    blocks: Blocks,
) -> tuple[
    Float[np.ndarray, "three shift_round column_round shift_round column_round"],
    Float[np.ndarray, "shift_round column_round"],
]:
    """For each part (PID, answer, both) the inner products of all pairs of blocks; and the variance of each block."""
    period, rounds = blocks.shape[2], blocks.shape[:2]
    blocks = blocks - blocks.mean((2, 3), keepdims=True)
    pid, answer = blocks.mean(3), blocks.mean(2)
    two_way = blocks - pid[:, :, :, None] - answer[:, :, None]
    flat = [effect.reshape(rounds[0] * rounds[1], -1) for effect in (pid, answer, two_way)]
    products = [scale * effect @ effect.T for scale, effect in zip((period, period, 1), flat, strict=True)]
    return np.array(products).reshape(3, *rounds, *rounds), (blocks**2).sum((2, 3, 4))


def _shares(
    agreement: Float[np.ndarray, "three shift_round column_round shift_round column_round"],
    size: Float[np.ndarray, "shift_round column_round"],
    shift_rounds: Int[np.ndarray, "kept_shift"],
    column_rounds: Int[np.ndarray, "kept_column"],
) -> Float[np.ndarray, "three"]:
    """The three shares of variance, from the agreement of blocks that share no shift, column or PID."""
    shift, column = (rounds.ravel() for rounds in np.meshgrid(shift_rounds, column_rounds, indexing="ij"))
    first, second = np.nonzero(
        (shift[:, None] != shift)
        & (column[:, None] != column)
        & (np.abs(np.subtract.outer(shift + column, shift + column)) > 1)  # PIDs of a block reach into the next round
    )
    mean_agreement = agreement[:, shift[first], column[first], shift[second], column[second]].mean(1)
    mean_size = size[shift, column].mean()
    return mean_agreement / mean_size if mean_size > 0 else np.zeros(3)
