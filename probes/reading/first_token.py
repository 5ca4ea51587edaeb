"""Does a counter know which token is the first? A linear probe at every site (paper, section 5, appendices D and E).

How well is "I am the first token that is counted" read, and how well the shift (the position id at which the row
starts), on rows whose shifts the probe has not seen? Causal attention alone gives much of both away, so every number
stands next to those of untrained counters of the same shape.

A token's own PID already tells something of the shift, which is never above it: `own_pid` is how much. Only what is
read beyond that was brought there from the first token. Accuracies below one half are no mistake: a probe that has
learnt by heart which PIDs came first is misled by unseen shifts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int

from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.schemes import SCHEMES
from probes.reading.linear_probe import balanced_accuracy, explained_variance, standardised
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, all_heads, site_activations, sites_of
from probes.stats import Interval
from training.batches import Batch
from training.tasks import Task

ROWS = 60
HELD_OUT = 1 / 3  # of the rows
LEAST_SHIFTS = 6
NEXT, ELSEWHERE = 3, 6  # tokens of a row that are read besides its first: right after it, and anywhere
SAME_PID = 4  # tokens whose PIDs differ by no more are at about the same
UNTRAINED = 3  # counters of the same shape with fresh weights
READ = 0.95  # balanced accuracy from which on a token is recognised
FITS = 90.0  # percent IND from which on a counter has learnt its task


@dataclass(frozen=True)
class Reading(Interval):
    """How well something is read on held-out rows, and from counters with fresh weights."""

    untrained: tuple[float, ...]

    @classmethod
    def of(cls, mine: Interval, others: Sequence[Interval]) -> "Reading":
        """A trained counter's estimate next to those of untrained ones."""
        return cls(mine.value, mine.low, mine.high, tuple(other.value for other in others))

    @property
    def learnt(self) -> bool:
        """Whether it is read better than from any untrained counter."""
        return self.low > max(self.untrained)

    def say(self, form: str) -> str:
        """The value next to the untrained ones."""
        mine, theirs = (format(value, form) for value in (self.value, max(self.untrained)))
        return f"{mine}, untrained up to {theirs}" + ("" if self.learnt else ": not learnt")


@dataclass(frozen=True)
class SiteReadings:
    """What linear probes read at one site."""

    site: Site
    first: Reading  # "I am the first token": balanced accuracy
    shift: Reading  # R²


@dataclass(frozen=True)
class FirstToken(Result):
    """What linear probes read at every site."""

    own_pid: float  # R² of the shift from a token's own PID alone
    sites: tuple[SiteReadings, ...]
    ignores_positions: bool  # so the shift cannot be known
    claim: bool | None  # whether, as the paper says, such a counter recognises its first token

    @property
    def best_first(self) -> SiteReadings:
        """The site that tells the first token best."""
        return max(self.sites, key=lambda site: site.first.value)

    @property
    def best_shift(self) -> SiteReadings:
        """The site that tells the shift best."""
        return max(self.sites, key=lambda site: site.shift.value)

    @property
    def verdict(self) -> Verdict:
        best = self.best_first
        read = best.first.value >= READ
        return Verdict(
            f"the first token is {'' if read else 'not '}read (best at {best.site.label}: balanced accuracy "
            f"{best.first.say('.0%')}); {self._shift()}",
            f"balanced accuracy {'below' if read else 'of at least'} {READ:.0%} on unseen shifts at "
            f"{'every' if read else 'some'} site",
            None if self.claim is None else read == self.claim,
        )

    def _shift(self) -> str:
        if self.ignores_positions:
            return "the shift cannot be read: position ids are ignored"
        best = self.best_shift
        beyond = "" if best.shift.low > self.own_pid else "not "
        return (
            f"the shift is {beyond}read beyond what a token's own PID tells (R² {self.own_pid:.2f}; "
            f"best at {best.site.label}: {best.shift.say('.2f')})"
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a site and quantity."""
        lines = [
            {"site": at.site.label, "kind": at.site.kind, "layer": at.site.layer, "head": at.site.head}
            | {"quantity": quantity, "value": reading.value, "low": reading.low, "high": reading.high}
            | {"untrained_mean": np.mean(reading.untrained), "untrained_max": max(reading.untrained)}
            for at in self.sites
            for quantity, reading in (("first", at.first), ("shift", at.shift))
        ]
        return pd.DataFrame(lines).astype({"layer": "Int64", "head": "Int64"})


@dataclass(frozen=True)
class Tokens:
    """Tokens of shifted rows that a probe learns from or is scored on."""

    batch: Batch
    rows: Int[np.ndarray, "token"]  # which row of the batch
    columns: Int[np.ndarray, "token"]  # where in it
    first: Bool[np.ndarray, "token"]
    shifts: Float[np.ndarray, "token"]
    fitted: Bool[np.ndarray, "token"]  # False where held out


def first_token_probe(counter: Counter, seed: int = 0, sites: Sequence[Site] | None = None) -> FirstToken:
    """How well the first token and the shift are read, at every layer's sites or at these."""
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed)
    chosen = list(all_heads(sites_of(counter)) if sites is None else sites)
    if not chosen:
        raise CountLensError("no sites to look at: leave `sites` out for all of them")
    seeds = range(seed, seed + UNTRAINED)
    untrained = [build_counter(counter.cfg, torch.Generator().manual_seed(number)) for number in seeds]
    mine, *others = (read_sites(one.to(counter.device), tokens, chosen, seed) for one in (counter, *untrained))
    readings = tuple(
        SiteReadings(
            site,
            Reading.of(mine[site][0], [other[site][0] for other in others]),
            Reading.of(mine[site][1], [other[site][1] for other in others]),
        )
        for site in chosen
    )
    return FirstToken(own_pid_share(tokens), readings, counter.ignores_positions, paper_claim(counter, task))


def first_token_score(counter: Counter, seed: int = 0) -> float:
    """How well the first token is read from the output of the block that tells it best; quick, for curves."""
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed)
    readings = read_sites(counter, tokens, sites_of(counter, ["resid_post"]), seed)
    return max(first.value for first, _ in readings.values())


def shifted_tokens(counter: Counter, task: Task, seed: int) -> Tokens:
    """The first counted token of rows at many shifts, and some others of each row; a third of the shifts is held out.

    Whatever policy it was trained with, rows have contiguous PIDs here, so that there is a shift.
    """
    generator = torch.Generator(counter.device).manual_seed(seed)
    chooser = np.random.default_rng(seed)
    end = counter.cfg.max_position if counter.has_positions else 2 * task.longest_row
    width = min(task.train_length + task.prefix, end // 2)
    n_shifts = end - width  # the last id is never used in training
    if n_shifts < LEAST_SHIFTS or width <= task.prefix + NEXT:
        raise NotApplicable(f"max_position={end} leaves no room to shift rows of {task.prefix + NEXT + 1} tokens")
    n_rows = min(ROWS, n_shifts)
    drawn = task.sample_length(task.train_length, n_rows, generator)
    token_ids, lengths = drawn.token_ids[:, :width], drawn.lengths.clamp(max=width)
    shifts = chooser.permutation(n_shifts)[:n_rows]
    columns = np.arange(width)
    inside = columns < lengths.cpu().numpy()[:, None]
    batch = Batch(
        token_ids,
        torch.tensor(shifts[:, None] + columns, device=counter.device),
        task.label(token_ids),
        torch.tensor(inside, device=counter.device),
        torch.ones(n_rows, device=counter.device),
    )
    rows, at = np.nonzero(_chosen_columns(inside, task.prefix, chooser))
    return Tokens(batch, rows, at, at == task.prefix, shifts[rows].astype(float), rows >= HELD_OUT * n_rows)


def _chosen_columns(
    inside: Bool[np.ndarray, "row pos"], first: int, chooser: np.random.Generator
) -> Bool[np.ndarray, "row pos"]:
    """The first counted column of every row, those right after it, and a few others."""
    order = chooser.random(inside.shape)
    order[:, first : first + 1 + NEXT] = -1
    order[:, :first] = 2
    order[~inside] = 2
    rank = order.argsort(1).argsort(1)
    return (rank < 1 + NEXT + ELSEWHERE) & (order < 2)


def read_sites(
    counter: Counter, tokens: Tokens, sites: Sequence[Site], seed: int
) -> dict[Site, tuple[Interval, Interval]]:
    """Balanced accuracy of "first" and R² of the shift at each site."""
    mask = None if counter.cfg.causal else tokens.batch.attention_mask
    activations = site_activations(counter, tokens.batch.token_ids, tokens.batch.position_ids, sites, mask)
    readings = {}
    for site, x in activations.items():
        features = standardised(x[tokens.rows, tokens.columns], tokens.fitted)
        readings[site] = (
            balanced_accuracy(features, tokens.first, tokens.rows, tokens.fitted, seed),
            explained_variance(features, tokens.shifts, tokens.rows, tokens.fitted, seed),
        )
    return readings


def own_pid_share(tokens: Tokens) -> float:
    """R² of the shift from a token's own PID alone: by the mean shift of fitted tokens at about the same PID."""
    own, fitted, shifts = tokens.shifts + tokens.columns, tokens.fitted, tokens.shifts
    near = np.abs(own[~fitted][:, None] - own[fitted]) <= SAME_PID
    guess = np.where(near.any(1), near @ shifts[fitted] / np.maximum(near.sum(1), 1), shifts[fitted].mean())
    missed, spread = guess - shifts[~fitted], shifts[~fitted] - shifts[fitted].mean()
    return float(1 - (missed**2).sum() / (spread**2).sum())


def paper_claim(counter: Counter, task: Task) -> bool | None:
    """What the paper says of rows without a prefix: equal tokens are told apart where the scheme adds something for
    each position, different ones by the causal mask alone. None where it says nothing or the task was not learnt."""
    scheme = getattr(counter.cfg, "position", None)
    if scheme is None or task.prefix or counter.info is None:
        return None
    equal_tokens = task.rows_repeat
    if not equal_tokens and scheme != "nope":
        return None
    claim = SCHEMES[scheme].separates_equal_tokens if equal_tokens else counter.cfg.causal
    return claim if not claim or counter.info.scores.get("ind", 0.0) >= FITS else None
