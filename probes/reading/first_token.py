"""Does a counter know which token is the first? A linear probe at every site (paper, section 5, appendices D and E).

Two things are read: whether a token is the first counted one, and the shift (the position id at which the row starts).
Both are scored on rows whose shifts the probe was not fitted on. Causal attention alone reveals much of both, so every
number is shown next to those of untrained counters of the same shape.

The best site is chosen on one half of the held-out rows and reported on the other. The null for the first token is
labels shuffled within rows; the null for the shift is that guesses are no better than those from a token's own PID.

A token's own PID already says something about the shift, which is never larger; `own_pid` is how much. Only what is
read beyond that came from the first token. Accuracies below one half can occur: a probe that memorises which PIDs were
first is misled by new shifts.
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
    label_p,
    predict_numbers,
    right_labels,
    standardised,
)
from probes.result import SHARE, Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site, all_heads, site_activations, sites_of
from probes.stats import ALPHA, Interval, say_p
from training.batches import Batch
from training.tasks import Task

ROWS = 72
FITTED, CHOOSING = 1 / 2, 1 / 4  # shares of the rows; results are reported on the rest
LEAST_SHIFTS = 6
NEXT, ELSEWHERE = 3, 6  # tokens of a row that are read besides its first: right after it, and at random places
SAME_PID = 4  # tokens whose PIDs differ by at most this have about the same PID
UNTRAINED = 3  # counters of the same shape with fresh weights
READ = 0.95  # balanced accuracy from which on the first token counts as recognised
FITS = 90.0  # percent IND from which on a counter counts as trained


@dataclass(frozen=True)
class Reading(Interval):
    """How well a probe reads something on the reported rows, and how well it does in untrained counters."""

    choosing: float  # the score on the rows on which the best site is chosen
    p: float  # of the null
    untrained: tuple[float, ...]  # the score in each untrained counter

    @property
    def learnt(self) -> bool:
        """Whether it is read better than from any untrained counter."""
        return self.low > max(self.untrained)

    def say(self, form: str) -> str:
        """The score with its interval, p-value and the best untrained score, as text."""
        numbers = f"{self:{form}}, {say_p(self.p)}, untrained up to {max(self.untrained):{form}}"
        return numbers + ": not learnt" * (not self.learnt)


@dataclass(frozen=True)
class SiteReadings:
    """How well linear probes read the first token and the shift at one site."""

    site: Site
    first: Reading  # balanced accuracy of "is the first token"
    shift: Reading  # R² of the shift; its null is the guess from a token's own PID


@dataclass(frozen=True)
class FirstToken(Result):
    """How well linear probes read the first token and the shift at every site."""

    own_pid: float  # R² of the shift from a token's own PID alone
    sites: tuple[SiteReadings, ...]
    ignores_positions: bool  # then the shift cannot be read
    claim: bool | None  # whether the paper says that such a counter recognises its first token; None if it says nothing

    @property
    def best_first(self) -> SiteReadings:
        """The site that reads the first token best on the rows for choosing."""
        return max(self.sites, key=lambda site: site.first.choosing)

    @property
    def best_shift(self) -> SiteReadings:
        """The site that reads the shift best on the rows for choosing."""
        return max(self.sites, key=lambda site: site.shift.choosing)

    @property
    def headline(self) -> Headline:
        best = self.best_first.first
        label = "not read" if best.p > ALPHA else "read" if best.value >= READ else "read in part"
        return Headline.of(f"first token {label}", "balanced accuracy at the best site", best, SHARE)

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
        """Whether recognition is as the paper claims; None without a claim, or if it is neither absent nor reliable."""
        best = self.best_first.first
        recognised = False if best.p > ALPHA else True if best.high >= READ else None
        return None if self.claim is None or recognised is None else recognised == self.claim

    def _shift(self) -> str:
        """How well the shift is read, as part of the verdict."""
        if self.ignores_positions:
            return "the shift cannot be read: position ids are ignored"
        best = self.best_shift
        beyond = "" if best.shift.p <= ALPHA else "not "
        return (
            f"the shift is {beyond}read beyond what a token's own PID tells (R² {self.own_pid:.2f}; "
            f"at {best.site.label}: {best.shift.say('.2f')})"
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per site and quantity (first, shift)."""
        lines = [
            at.site.columns
            | {"quantity": quantity, "value": reading.value, "low": reading.low, "high": reading.high}
            | {"choosing": reading.choosing, "p": reading.p}
            | {"untrained_mean": np.mean(reading.untrained), "untrained_max": max(reading.untrained)}
            for at in self.sites
            for quantity, reading in (("first", at.first), ("shift", at.shift))
        ]
        return pd.DataFrame(lines).astype({"layer": "Int64", "head": "Int64"})


@dataclass(frozen=True)
class Tokens:
    """Tokens of shifted rows, for fitting probes, choosing the best site, and reporting."""

    batch: Batch
    rows: Int[np.ndarray, "token"]  # index of the token's row in the batch
    columns: Int[np.ndarray, "token"]  # index of the token in its row
    first: Bool[np.ndarray, "token"]
    shifts: Float[np.ndarray, "token"]
    fitted: Bool[np.ndarray, "token"]
    choosing: Bool[np.ndarray, "token"]  # held out, for choosing the best site

    @property
    def reported(self) -> Bool[np.ndarray, "token"]:
        """True at held-out tokens that results are reported on."""
        return ~self.fitted & ~self.choosing


def first_token_probe(
    counter: Counter, seed: int = 0, sites: Sequence[Site] | None = None, equal_tokens: bool = False
) -> FirstToken:
    """How well linear probes read the first token and the shift, at the given sites or at all.

    Rows are the task's own or, with `equal_tokens`, of one kind of token; the paper claims nothing of the latter.
    """
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed, equal_tokens)
    chosen = list(all_heads(sites_of(counter)) if sites is None else sites)
    if not chosen:
        raise CountLensError("no sites to look at: leave `sites` out for all of them")
    seeds = range(seed, seed + UNTRAINED)
    untrained = [build_counter(counter.cfg, torch.Generator().manual_seed(number)) for number in seeds]
    trained = read_sites(counter, tokens, chosen, seed)
    others = [read_sites(other.to(counter.device), tokens, chosen, seed) for other in untrained]
    readings = tuple(
        SiteReadings(
            site,
            *(
                replace(trained[site][which], untrained=tuple(other[site][which].value for other in others))
                for which in range(2)
            ),
        )
        for site in chosen
    )
    own_pid = explained_variance(
        own_pid_guess(tokens)[tokens.reported], *_reported_shifts(tokens), tokens.rows[tokens.reported]
    )
    claim = None if equal_tokens else paper_claims_recognition(counter, task)
    return FirstToken(own_pid.value, readings, counter.ignores_positions, claim)


def first_token_score(counter: Counter, seed: int = 0) -> float:
    """The balanced accuracy of the first token at the best block output (chosen on other rows); quick, for curves."""
    task, _ = task_of_counter(counter)
    tokens = shifted_tokens(counter, task, seed)
    activations = _token_activations(counter, tokens, sites_of(counter, ["resid_post"]))
    accuracies = []
    for x in activations.values():
        right = right_labels(standardised(x, tokens.fitted), tokens.first, tokens.fitted)
        accuracies.append([_accuracy(right, tokens, at) for at in (tokens.choosing, tokens.reported)])
    return max(accuracies)[1]


def shifted_tokens(counter: Counter, task: Task, seed: int, equal_tokens: bool = False) -> Tokens:
    """Tokens of rows at many shifts: the first counted one and some others of each row.

    The rows have contiguous PIDs whatever the policy of training was, so that each has a shift. Half of the rows are
    fitted, a quarter is for choosing the best site, and a quarter is reported.
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
    """True at the first counted column of every row, at those right after it, and at a few random others."""
    order = chooser.random(inside.shape)
    order[:, first : first + 1 + NEXT] = -1
    order[:, :first] = 2
    order[~inside] = 2
    rank = order.argsort(1).argsort(1)
    return (rank < 1 + NEXT + ELSEWHERE) & (order < 2)


def read_sites(
    counter: Counter, tokens: Tokens, sites: Sequence[Site], seed: int
) -> dict[Site, tuple[Reading, Reading]]:
    """The readings of first token and shift at each site; their `untrained` is still empty."""
    own = own_pid_guess(tokens)
    return {
        site: (_read_first(features, tokens, seed), _read_shift(features, tokens, own, seed))
        for site, x in _token_activations(counter, tokens, sites).items()
        for features in [standardised(x, tokens.fitted)]
    }


def _token_activations(
    counter: Counter, tokens: Tokens, sites: Sequence[Site]
) -> dict[Site, Float[np.ndarray, "token _"]]:
    """The activations of a counter at each of the tokens, by site."""
    mask = None if counter.cfg.causal else tokens.batch.attention_mask
    activations = site_activations(counter, tokens.batch.token_ids, tokens.batch.position_ids, sites, mask)
    return {site: x[tokens.rows, tokens.columns] for site, x in activations.items()}


def _read_first(features: Features, tokens: Tokens, seed: int) -> Reading:
    """How well a logistic regression reads whether a token is the first."""
    right = right_labels(features, tokens.first, tokens.fitted)
    at = tokens.reported
    there = None if right is None else right[at]
    accuracy = balanced_accuracy(there, tokens.first[at], tokens.rows[at], seed)
    p = label_p(there, tokens.first[at], tokens.rows[at], seed)
    return Reading(accuracy.value, accuracy.low, accuracy.high, _accuracy(right, tokens, tokens.choosing), p, ())


def _accuracy(right: TokenMask | None, tokens: Tokens, at: TokenMask) -> float:
    """Balanced accuracy on some of the tokens, without an interval."""
    if right is None:
        return 0.5
    first, right = tokens.first[at], right[at]
    return float((right[first].mean() + right[~first].mean()) / 2)


def _read_shift(features: Features, tokens: Tokens, own: Float[np.ndarray, "token"], seed: int) -> Reading:
    """How well a ridge regression reads the shift; `own` are the guesses from a token's own PID."""
    guess = predict_numbers(features, tokens.shifts, tokens.rows, tokens.fitted)
    at, choosing = tokens.reported, tokens.choosing
    shifts, middle = _reported_shifts(tokens)
    r2 = explained_variance(guess[at], shifts, middle, tokens.rows[at], seed)
    missed, spread = ((tokens.shifts[choosing] - other) ** 2 for other in (guess[choosing], middle))
    p = better_guess_p(guess[at], own[at], shifts, tokens.rows[at], seed)
    return Reading(r2.value, r2.low, r2.high, float(1 - missed.sum() / spread.sum()), p, ())


def _reported_shifts(tokens: Tokens) -> tuple[Float[np.ndarray, "token"], float]:
    """The shifts of the reported tokens, and the mean shift of the fitted ones."""
    return tokens.shifts[tokens.reported], float(tokens.shifts[tokens.fitted].mean())


def own_pid_guess(tokens: Tokens) -> Float[np.ndarray, "token"]:
    """The shift as guessed from a token's own PID: the mean shift of fitted tokens at about the same PID."""
    own, fitted, shifts = tokens.shifts + tokens.columns, tokens.fitted, tokens.shifts
    near = np.abs(own[:, None] - own[fitted]) <= SAME_PID
    return np.where(near.any(1), near @ shifts[fitted] / np.maximum(near.sum(1), 1), shifts[fitted].mean())


def paper_claims_recognition(counter: Counter, task: Task) -> bool | None:
    """Whether the paper says that such a counter recognises its first token.

    It says so of rows without a prefix: equal tokens are told apart if the scheme adds something at each position,
    different ones by the causal mask alone. None if it says nothing, or if the counter has not learnt its task.
    """
    scheme = getattr(counter.cfg, "position", None)
    if scheme is None or task.prefix or counter.info is None:
        return None
    equal_tokens = task.rows_repeat
    if not equal_tokens and scheme != "nope":
        return None
    claim = SCHEMES[scheme].separates_equal_tokens if equal_tokens else counter.cfg.causal
    return claim if not claim or counter.info.scores.get("ind", 0.0) >= FITS else None
