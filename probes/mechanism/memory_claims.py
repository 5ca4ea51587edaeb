"""How often a claim about a recurrent memory comes out, against nulls that can win.

A claim says what answers become after an edit of the memory. Each null makes the same kind of edit elsewhere, many
times over. A claim is *supported* if its score is above that of every draw of every null (with 19 draws: at the level
of 0.05) and surely above the mean of the best null. How much it explains is the margin over that null, not a yes or no.

Some edits prove nothing, whatever comes out: one that puts the donor's whole memory in place makes the counter answer
as in the donor's row by construction, and one that moves nothing leaves every answer. Such claims are not testable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from probes.mechanism.grades import of_what_is_left
from probes.mechanism.memory import LaterAnswers, Remembers, Vectors
from probes.mechanism.memory_trials import Trials
from probes.stats import Interval, wilson

DRAWS = 19  # of each null: a score above all of them has p = 0.05
FIRST_DRAWS = 5  # of which two that score no less are enough to stop: no more draws could make p small
LEVEL = 0.05
FORCED = 0.02  # of the way to a memory that a row has: an edit that is nearer is that memory
STILL = 0.05  # of the way: an edit that moves less has nothing to show

EditScores = Float[Tensor, "edit row"]


@dataclass(frozen=True)
class Null:
    """How the same kind of edit does elsewhere, over many draws."""

    name: str
    mean: float  # score over draws
    highest: float
    draws: int
    p: float | None  # share of draws, the claim's own included, that score no less; None where few, all of them less

    @property
    def loses(self) -> bool:
        """Whether the claim is above every draw; a null of few draws loses if all of them score less."""
        return self.p is None or self.p <= LEVEL


@dataclass(frozen=True)
class MemoryClaim:
    """What a hypothesis says of one edit, and how often it came out."""

    variable: str
    ignored: bool  # whether the edit should change no answer
    place: str
    score: Interval
    nulls: tuple[Null, ...]
    margin: Interval  # over the mean of the best null
    forced: str = ""  # why it is not testable; empty where it is

    @property
    def best_null(self) -> Null:
        """The null with the highest mean."""
        return max(self.nulls, key=lambda null: null.mean)

    @property
    def supported(self) -> bool:
        """Whether it is surely above the best null, and above every draw of each."""
        return not self.forced and self.margin.low > 0 and all(null.loses for null in self.nulls)

    @property
    def surplus(self) -> float:
        """What it surely explains of that which its best null leaves open."""
        return of_what_is_left(self.margin.low, self.best_null.mean) if self.supported else 0.0

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        if self.forced:
            return f"{self.variable} is not testable: {self.forced}"
        value, low, high = (round(100 * share) for share in (self.margin.value, self.margin.low, self.margin.high))
        comes_out = (
            f"{self.variable} {'leaves' if self.ignored else 'moves'} {self.score.value:.0%} of answers as claimed"
        )
        null = f"{self.best_null.name}, {self.best_null.mean:.0%}"
        return f"{comes_out}, {value:+d} points [{low}, {high}] over the best null ({null})"


def mean_score(scores: Float[Tensor, "row"]) -> Interval:
    """The mean of scores between 0 and 1, with Wilson's interval for a share of `len(scores)` trials."""
    mean, number = float(scores.mean()), np.array([float(len(scores))])
    low, high = wilson(mean * number, number)
    return Interval(mean, float(low[0]), float(high[0]))


def difference(score: Interval, null: Interval) -> Interval:
    """How much higher a share is than another, from the intervals of both (Newcombe 1998, method 10).

    >>> margin = difference(Interval(1.0, 0.9, 1.0), Interval(0.5, 0.3, 0.7))
    >>> margin.value, round(margin.low, 3)
    (0.5, 0.276)
    """
    value = score.value - null.value
    low = value - float(np.hypot(score.value - score.low, null.high - null.value))
    high = value + float(np.hypot(score.high - score.value, null.value - null.low))
    return Interval(value, low, high)


def edit_scores(memory: Remembers, trials: Trials, edits: Sequence[Vectors], claimed: LaterAnswers) -> EditScores:
    """The score of every trial under each edit."""
    answers = memory.go_on(torch.cat(list(edits)), trials.next_ids.repeat(len(edits), 1))
    return torch.stack([trials.scores(by_trial, claimed) for by_trial in answers.split(len(trials))])


@dataclass(frozen=True)
class Judge:
    """Scores a claim's edit and those of its nulls on the same trials."""

    memory: Remembers
    trials: Trials
    claimed: LaterAnswers

    def claim(
        self,
        edit: Vectors,
        nulls: Mapping[str, Iterable[Vectors]],
        variable: str,
        place: str,
        ignored: bool = False,
        forced: str = "",
    ) -> MemoryClaim:
        """The claim with its score and nulls, whose edits are drawn as needed; without nulls if it is not testable."""
        score = mean_score(self._scores([edit])[0])
        if forced:
            return MemoryClaim(variable, ignored, place, score, (), Interval(0.0, -1.0, 1.0), forced)
        null_scores = {name: self._null_scores(iter(edits), score.value) for name, edits in nulls.items()}
        summaries = tuple(_null(name, scores, score.value) for name, scores in null_scores.items())
        best = max(summaries, key=lambda null: null.mean)
        margin = difference(score, mean_score(null_scores[best.name].mean(0)))
        return MemoryClaim(variable, ignored, place, score, summaries, margin)

    def _scores(self, edits: Sequence[Vectors]) -> EditScores:
        return edit_scores(self.memory, self.trials, edits, self.claimed)

    def _null_scores(self, edits: Iterator[Vectors], score: float) -> EditScores:
        """The scores of a null's draws; only FIRST_DRAWS of them if two of those already score no less."""
        first = self._scores(list(islice(edits, FIRST_DRAWS)))
        if _no_less(first, score) > 1:
            return first
        rest = list(edits)
        return torch.cat([first, self._scores(rest)]) if rest else first


def _no_less(scores: EditScores, score: float) -> int:
    return int((scores.mean(1) >= score - 1e-9).sum())


def _null(name: str, scores: EditScores, score: float) -> Null:
    draws, by_draw = len(scores), scores.mean(1)
    p = (1 + _no_less(scores, score)) / (1 + draws)
    few = draws < DRAWS and p <= 1 / (1 + draws)  # above all of too few draws to say how rare that is
    return Null(name, float(by_draw.mean()), float(by_draw.max()), draws, None if few else p)
