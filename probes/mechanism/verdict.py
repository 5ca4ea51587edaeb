"""Which stated algorithm a counter follows, tested by intervention: the paper argues it from pictures.

Every hypothesis (`mechanism.hypotheses`) makes claims: what the counter answers as it is, what it answers when one
variable is swapped between two rows, at whatever place the variable is, and what makes no difference. *Interchange
accuracy* is how often the counter answers as predicted, over pairs where that is neither row's own answer. The place
of a variable is sought on some pairs and scored on others; its nulls are the same displacement turned in random
directions, and an untrained counter whose places were sought as well. A hypothesis is as good as its worst claim.

What recurrent counters remember is tested in `probes.mechanism.memory_verdict`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from models.counter import Counter
from models.families import build_counter
from models.transformer import Transformer
from probes.mechanism.hypotheses import Hypothesis, Variable, answer_ids, hypotheses_of
from probes.mechanism.interchange import (
    HOLDS,
    Place,
    SwapPairs,
    Swapper,
    draw_pairs,
    may_hold,
    places_of,
    variable_directions,
)
from probes.result import Result, Verdict, task_of_counter
from probes.stats import Interval, share_interval
from training.tasks import Task

SEARCH_PAIRS = 96  # on which places are sought
FIT_ROWS = 256  # to whose tokens the directions of variables are fitted
N_PAIRS = 256  # on which they are scored
AS_IT_IS = "answers"  # the claim about the counter with nothing swapped
PAPER = {"modular": "first_position", "selective": "shares"}


@dataclass(frozen=True)
class Claim:
    """What a hypothesis says of one swap, and how often it came out."""

    variable: str  # what is swapped; `answers` where nothing is
    ignored: bool  # whether the swap should change nothing
    place: str  # where it came out best; where it should change nothing, worst
    accuracy: Interval  # of the counter
    placebo: Interval | None  # activations moved as far in random directions; None where no such null applies
    untrained: Interval  # of an untrained counter, at its own best place

    @property
    def holds(self) -> bool:
        """Surely more often than not and, where something is to be found, more often than in both nulls."""
        nulls = [null.high for null in (self.placebo, self.untrained) if null is not None]
        return self.accuracy.low >= HOLDS and (self.ignored or self.accuracy.low > max(nulls))


@dataclass(frozen=True)
class Tested:
    """A hypothesis and how its claims came out."""

    name: str
    equation: str
    summary: str
    claims: tuple[Claim, ...]

    @property
    def worst(self) -> Claim:
        """The claim that came out least often."""
        return min(self.claims, key=lambda claim: claim.accuracy.value)

    @property
    def score(self) -> Interval:
        """A hypothesis is as good as its worst claim."""
        return self.worst.accuracy

    @property
    def explains(self) -> bool:
        """Whether all claims hold."""
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True)
class Searched:
    """How often a variable's swap came out at one place, on the pairs that places are sought on."""

    hypothesis: str
    variable: str
    place: str
    accuracy: float


@dataclass(frozen=True)
class Mechanisms(Result):
    """Every hypothesis with its claims, and the search for their places."""

    task: str
    hypotheses: tuple[Tested, ...]
    searched: tuple[Searched, ...]
    pairs: int
    expected: str | None  # the hypothesis that the paper has for such a counter; None: it has none

    @property
    def winner(self) -> Tested | None:
        """The explanation with the highest score; None where no hypothesis explains the counter."""
        found = [tested for tested in self.hypotheses if tested.explains]
        return max(found, key=lambda tested: tested.score.value, default=None)

    @property
    def verdict(self) -> Verdict:
        winner = self.winner
        if winner is None:
            best = max(self.hypotheses, key=lambda tested: tested.score.value)
            sentence = (
                f"None of the stated algorithms explains it: the nearest, {best.name}, fails at {_say(best.worst)}."
            )
            would = f"a hypothesis whose every swap comes out surely more than {HOLDS:.0%} of the time"
        else:
            found = ", ".join(_say(claim) for claim in winner.claims)
            others = [tested for tested in self.hypotheses if tested is not winner]
            lost = ", ".join(f"{tested.name} {tested.score.value:.0%}" for tested in others)
            sentence = f"It counts by {winner.name}, {winner.equation}: {found}. Others: {lost}."
            would = (
                f"a swap of {winner.name} that comes out no more than {HOLDS:.0%} of the time, or in a null as often"
            )
        agrees = None if self.expected is None else winner is not None and winner.name == self.expected
        return Verdict(sentence, would, agrees)

    def to_frame(self) -> pd.DataFrame:
        """One line a claim."""
        lines = [
            {
                "hypothesis": tested.name,
                "variable": claim.variable,
                "ignored": claim.ignored,
                "place": claim.place,
                "accuracy": claim.accuracy.value,
                "low": claim.accuracy.low,
                "high": claim.accuracy.high,
                "placebo": np.nan if claim.placebo is None else claim.placebo.value,
                "untrained": claim.untrained.value,
                "holds": claim.holds,
            }
            for tested in self.hypotheses
            for claim in tested.claims
        ]
        return pd.DataFrame(lines)

    def places_frame(self) -> pd.DataFrame:
        """One line a hypothesis, variable and place of the search."""
        return pd.DataFrame([vars(one) for one in self.searched])


def _say(claim: Claim) -> str:
    value = f"{claim.accuracy.value:.0%} (from {claim.accuracy.low:.0%})"
    if claim.variable == AS_IT_IS:
        return f"its own answers {value}"
    if claim.ignored:
        return f"{claim.variable} makes no difference {value}"
    return f"{claim.variable} at {claim.place} {value}"


def mechanisms(
    counter: Counter, hypotheses: Mapping[str, Hypothesis] | None = None, pairs: int = N_PAIRS, seed: int = 0
) -> Mechanisms:
    """How well every stated algorithm predicts what swaps do to an attention counter; or these hypotheses."""
    task, _ = task_of_counter(counter)
    chosen = hypotheses_of(counter, task) if hypotheses is None else dict(hypotheses)
    assert isinstance(counter, Transformer)
    untrained = build_counter(counter.cfg, torch.Generator().manual_seed(seed)).to(counter.device)
    assert isinstance(untrained, Transformer)
    examined = _Examination(counter, task, chosen, pairs, seed)
    null = _Examination(untrained, task, chosen, pairs, seed)
    tested = tuple(
        Tested(name, one.equation, one.summary, _claims(name, one, examined, null)) for name, one in chosen.items()
    )
    searched = tuple(
        Searched(name, variable, place.label, accuracy)
        for (name, variable), by_place in examined.searched.items()
        for place, accuracy in by_place.items()
    )
    return Mechanisms(task.name, tested, searched, pairs, _papers_claim(counter, task))


class _Examination:
    """One counter under all swaps."""

    def __init__(self, counter: Transformer, task: Task, hypotheses: Mapping[str, Hypothesis], pairs: int, seed: int):
        self.task = task
        places = places_of(counter, hypotheses)
        along = variable_directions(counter, task, hypotheses, places, FIT_ROWS, seed)
        seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
        self._search, self._score = (
            Swapper(counter, draw_pairs(counter, task, hypotheses, number, own), places, along)
            for number, own in zip((SEARCH_PAIRS, pairs), seeds, strict=True)
        )
        self.searched = self._sought(hypotheses, places)
        self.placebo_seed = seed

    def _sought(
        self, hypotheses: Mapping[str, Hypothesis], places: Sequence[Place]
    ) -> dict[tuple[str, str], dict[Place, float]]:
        """How often each variable's swap comes out at each place that may hold it."""
        found: dict[tuple[str, str], dict[Place, float]] = {
            (name, variable.name): {} for name, one in hypotheses.items() for variable in one.variables
        }
        for place in places:
            claims = [
                (name, one, variable)
                for name, one in hypotheses.items()
                for variable in one.variables
                if may_hold(place, name, variable)
            ]
            if claims:
                answers = self._search.answers(place)
                for name, one, variable in claims:
                    right = self._right(self._search.pairs, answers, one, variable, place)
                    found[name, variable.name][place] = right.value
        return found

    def place_of(self, hypothesis: str, variable: Variable) -> Place:
        """Where the variable is swapped with most success; where nothing should change, with least."""
        by_place = self.searched[hypothesis, variable.name]
        best = min if variable.ignored else max
        return best(by_place, key=lambda place: by_place[place])

    def accuracy(self, one: Hypothesis, variable: Variable, place: Place, placebo: bool = False) -> Interval:
        """How often a swap comes out, on pairs of its own."""
        answers = self._score.answers(place, self.placebo_seed if placebo else None)
        return self._right(self._score.pairs, answers, one, variable, place)

    def as_it_is(self, one: Hypothesis) -> Interval:
        """How often the counter answers as the algorithm does, with nothing swapped."""
        pairs = self._score.pairs
        predicted = answer_ids(self.task, one.outcome(one.values(pairs.query)))
        return share_interval(self._score.answers() == predicted)

    def _right(
        self, pairs: SwapPairs, answers: torch.Tensor, one: Hypothesis, variable: Variable, place: Place
    ) -> Interval:
        predicted, tells = pairs.expected(self.task, one, variable, place.at)
        return share_interval((answers == predicted)[tells])


def _claims(name: str, one: Hypothesis, examined: _Examination, null: _Examination) -> tuple[Claim, ...]:
    claims = [Claim(AS_IT_IS, False, "", examined.as_it_is(one), None, null.as_it_is(one))]
    for variable in one.variables:
        place = examined.place_of(name, variable)
        untrained = null.accuracy(one, variable, null.place_of(name, variable))
        placebo = None if variable.ignored else examined.accuracy(one, variable, place, placebo=True)
        accuracy = examined.accuracy(one, variable, place)
        claims.append(Claim(variable.name, variable.ignored, place.label, accuracy, placebo, untrained))
    return tuple(claims)


def _papers_claim(counter: Transformer, task: Task) -> str | None:
    """The algorithm that the paper ascribes to such counters: ape and sine on mod 10, all on selective counting."""
    is_exception = task.period and (task.bos or counter.cfg.position not in ("ape", "sine"))
    return None if is_exception else PAPER[task.form]
