"""Does a counter know which token is the first? A linear probe at every site (paper, section 5, appendices D and E).

How well is "I am the first token that is counted" read, and how well the shift (the position id at which the row
starts), on rows whose shifts the probe has not seen? Causal attention alone gives much of both away, so every number
stands next to those of untrained counters of the same shape.

Which site tells it best is chosen on one half of the held-out rows and reported on the other. The null of "first" are
labels shuffled within rows; that of the shift, guesses from a token's own PID that are better as often as worse.

A token's own PID already tells something of the shift, which is never above it: `own_pid` is how much. Only what is
read beyond that was brought there from the first token. Accuracies below one half are no mistake: a probe that has
learnt by heart which PIDs came first is misled by unseen shifts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int

from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.schemes import SCHEMES
from probes.reading.linear_probe import (
    Features,
    TokenMask,
    balanced_accuracy,
    better_guess_p,
    explained_variance,
    guesses,
    label_p,
    right_labels,
    standardised,
)
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, all_heads, site_activations, sites_of
from probes.stats import Interval, say_p
from training.batches import Batch
from training.tasks import Task

ROWS = 72
FITTED, CHOOSING = 1 / 2, 1 / 4  # of the rows; the rest is reported on
LEAST_SHIFTS = 6
NEXT, ELSEWHERE = 3, 6  # tokens of a row that are read besides its first: right after it, and anywhere
SAME_PID = 4  # tokens whose PIDs differ by no more are at about the same
UNTRAINED = 3  # counters of the same shape with fresh weights
ALPHA = 0.05
READ = 0.95  # balanced accuracy of a token that is recognised, to within this much
FITS = 90.0  # percent IND from which on a counter has learnt its task


@dataclass(frozen=True)
class Reading(Interval):
    """How well something is read on the rows that are reported, and from counters with fresh weights."""

    choosing: float  # on the rows by which the best site is chosen
    p: float  # how often chance reads as much
    untrained: tuple[float, ...]

    @property
    def learnt(self) -> bool:
        """Whether it is read better than from any untrained counter."""
        return self.low > max(self.untrained)

    def say(self, form: str) -> str:
        """The value next to the untrained ones."""
        value, low, high, theirs = (
            format(number, form) for number in (self.value, self.low, self.high, max(self.untrained))
        )
        return f"{value} ({low} to {high}), {say_p(self.p)}, untrained up to {theirs}" + ": not learnt" * (
            not self.learnt
        )


@dataclass(frozen=True)
class SiteReadings:
    """What linear probes read at one site."""

    site: Site
    first: Reading  # "I am the first token": balanced accuracy
    shift: Reading  # R²; chance is what a token's own PID tells


@dataclass(frozen=True)
class FirstToken(Result):
    """What linear probes read at every site."""

    own_pid: float  # R² of the shift from a token's own PID alone
    sites: tuple[SiteReadings, ...]
    ignores_positions: bool  # so the shift cannot be known
    claim: bool | None  # whether, as the paper says, such a counter recognises its first token

    @property
    def best_first(self) -> SiteReadings:
        """The site that tells the first token best, by rows other than those that are reported."""
        return max(self.sites, key=lambda site: site.first.choosing)

    @property
    def best_shift(self) -> SiteReadings:
        """The site that tells the shift best, by rows other than those that are reported."""
        return max(self.sites, key=lambda site: site.shift.choosing)

    @property
    def verdict(self) -> Verdict:
        best = self.best_first
        read = best.first.p <= ALPHA
        return Verdict(
            f"the first token is {'' if read else 'not '}read (at {best.site.label}, which other rows chose: balanced "
            f"accuracy {best.first.say('.0%')}); {self._shift()}",
            f"labels shuffled within rows being read as well in {'more' if read else 'less'} than {ALPHA:.0%} of cases",
            self._agrees(),
        )

    def _agrees(self) -> bool | None:
        """The paper: the first token is recognised, or not at all. None where it is read, but not reliably."""
        best = self.best_first.first
        recognised = False if best.p > ALPHA else True if best.high >= READ else None
        return None if self.claim is None or recognised is None else recognised == self.claim

    def _shift(self) -> str:
        if self.ignores_positions:
            return "the shift cannot be read: position ids are ignored"
        best = self.best_shift
        beyond = "" if best.shift.p <= ALPHA else "not "
        return (
            f"the shift is {beyond}read beyond what a token's own PID tells (R² {self.own_pid:.2f}; "
            f"at {best.site.label}: {best.shift.say('.2f')})"
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a site and quantity."""
        lines = [
            {"site": at.site.label, "kind": at.site.kind, "layer": at.site.layer, "head": at.site.head}
            | {"quantity": quantity, "value": reading.value, "low": reading.low, "high": reading.high}
            | {"choosing": reading.choosing, "p": reading.p}
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
    fitted: Bool[np.ndarray, "token"]
    choosing: Bool[np.ndarray, "token"]  # held out, to choose the best site by

    @property
    def reported(self) -> Bool[np.ndarray, "token"]:
        """Held out, to report on."""
        return ~self.fitted & ~self.choosing


def first_token_probe(
    counter: Counter, seed: int = 0, sites: Sequence[Site] | None = None, equal_tokens: bool = False
) -> FirstToken:
    """How well the first token and the shift are read, at every layer's sites or at these.

    Rows are the task's own, or consist of one kind of token alone: of these the paper claims nothing.
    """
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed, equal_tokens)
    chosen = list(all_heads(sites_of(counter)) if sites is None else sites)
    if not chosen:
        raise CountLensError("no sites to look at: leave `sites` out for all of them")
    seeds = range(seed, seed + UNTRAINED)
    untrained = [build_counter(counter.cfg, torch.Generator().manual_seed(number)) for number in seeds]
    mine = read_sites(counter, tokens, chosen, seed)
    others = [read_sites(other.to(counter.device), tokens, chosen, seed) for other in untrained]
    readings = tuple(
        SiteReadings(
            site,
            *(
                replace(mine[site][which], untrained=tuple(other[site][which].value for other in others))
                for which in range(2)
            ),
        )
        for site in chosen
    )
    own_pid = explained_variance(
        own_pid_guess(tokens)[tokens.reported], *_reported_shifts(tokens), tokens.rows[tokens.reported]
    )
    claim = None if equal_tokens else paper_claim(counter, task)
    return FirstToken(own_pid.value, readings, counter.ignores_positions, claim)


def first_token_score(counter: Counter, seed: int = 0) -> float:
    """How well the first token is read from the output of the block that other rows say tells it best; for curves."""
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed)
    activations = _token_activations(counter, tokens, sites_of(counter, ["resid_post"]))
    accuracies = []
    for x in activations.values():
        right = right_labels(standardised(x, tokens.fitted), tokens.first, tokens.fitted)
        accuracies.append([_accuracy(right, tokens, at) for at in (tokens.choosing, tokens.reported)])
    return max(accuracies)[1]


def shifted_tokens(counter: Counter, task: Task, seed: int, equal_tokens: bool = False) -> Tokens:
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
    if equal_tokens:
        counted = torch.tensor(inside & (columns >= task.prefix), device=counter.device)
        token_ids = token_ids.where(~counted, task.vocab.encode([task.kinds[0]])[0])
    batch = Batch(
        token_ids,
        torch.tensor(shifts[:, None] + columns, device=counter.device),
        task.label(token_ids),
        torch.tensor(inside, device=counter.device),
        torch.ones(n_rows, device=counter.device),
    )
    rows, at = np.nonzero(_chosen_columns(inside, task.prefix, chooser))
    share = rows / n_rows
    fitted, choosing = share < FITTED, (share >= FITTED) & (share < FITTED + CHOOSING)
    return Tokens(batch, rows, at, at == task.prefix, shifts[rows].astype(float), fitted, choosing)


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
) -> dict[Site, tuple[Reading, Reading]]:
    """Balanced accuracy of "first" and R² of the shift at each site; untrained counters are still to be added."""
    own = own_pid_guess(tokens)
    return {
        site: (_read_first(features, tokens, seed), _read_shift(features, tokens, own, seed))
        for site, x in _token_activations(counter, tokens, sites).items()
        for features in [standardised(x, tokens.fitted)]
    }


def _token_activations(
    counter: Counter, tokens: Tokens, sites: Sequence[Site]
) -> dict[Site, Float[np.ndarray, "token _"]]:
    """What a counter has at each of the tokens."""
    mask = None if counter.cfg.causal else tokens.batch.attention_mask
    activations = site_activations(counter, tokens.batch.token_ids, tokens.batch.position_ids, sites, mask)
    return {site: x[tokens.rows, tokens.columns] for site, x in activations.items()}


def _read_first(features: Features, tokens: Tokens, seed: int) -> Reading:
    right = right_labels(features, tokens.first, tokens.fitted)
    at = tokens.reported
    there = None if right is None else right[at]
    found = balanced_accuracy(there, tokens.first[at], tokens.rows[at], seed)
    p = label_p(there, tokens.first[at], tokens.rows[at], seed)
    return Reading(found.value, found.low, found.high, _accuracy(right, tokens, tokens.choosing), p, ())


def _accuracy(right: TokenMask | None, tokens: Tokens, at: TokenMask) -> float:
    """Balanced accuracy on some of the tokens, without an interval."""
    if right is None:
        return 0.5
    first, right = tokens.first[at], right[at]
    return float((right[first].mean() + right[~first].mean()) / 2)


def _read_shift(features: Features, tokens: Tokens, own: Float[np.ndarray, "token"], seed: int) -> Reading:
    guess = guesses(features, tokens.shifts, tokens.rows, tokens.fitted)
    at, choosing = tokens.reported, tokens.choosing
    shifts, middle = _reported_shifts(tokens)
    found = explained_variance(guess[at], shifts, middle, tokens.rows[at], seed)
    missed, spread = ((tokens.shifts[choosing] - other) ** 2 for other in (guess[choosing], middle))
    p = better_guess_p(guess[at], own[at], shifts, tokens.rows[at], seed)
    return Reading(found.value, found.low, found.high, float(1 - missed.sum() / spread.sum()), p, ())


def _reported_shifts(tokens: Tokens) -> tuple[Float[np.ndarray, "token"], float]:
    """The shifts that are reported on, and the mean of those that were fitted."""
    return tokens.shifts[tokens.reported], float(tokens.shifts[tokens.fitted].mean())


def own_pid_guess(tokens: Tokens) -> Float[np.ndarray, "token"]:
    """The shift as a token's own PID tells it: the mean shift of fitted tokens at about the same PID."""
    own, fitted, shifts = tokens.shifts + tokens.columns, tokens.fitted, tokens.shifts
    near = np.abs(own[:, None] - own[fitted]) <= SAME_PID
    return np.where(near.any(1), near @ shifts[fitted] / np.maximum(near.sum(1), 1), shifts[fitted].mean())


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
