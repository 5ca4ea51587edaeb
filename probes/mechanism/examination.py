"""One counter under all swaps: where each variable is, and how often each claim of a hypothesis comes out there.

The place of a variable is sought on some pairs and scored on others. Only pairs whose implied distance occurred in
training count for the score; those below 1 and beyond, and those of longer rows, stand beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int
from torch import Tensor

from models.checkpoint import load_counter
from models.errors import CountLensError
from models.transformer import Transformer
from probes.mechanism.directions import variable_directions
from probes.mechanism.grades import ALPHA, constant_null, grade, permuted_null, surplus
from probes.mechanism.hypotheses import ONLY_FITS, Hypothesis, Variable, answer_ids, hypotheses_of
from probes.mechanism.interchange import HAS_PLACEBO, Swapper
from probes.mechanism.places import Place, is_forced, may_hold, places_of
from probes.mechanism.swap_pairs import BELOW, BEYOND, TRAINED, PairLengths, Prediction, draw_pairs
from probes.result import NotApplicable, task_of_counter
from probes.stats import Interval, share_interval
from training.tasks import Task

SEARCH_PAIRS = 96  # on which places are sought
FIT_ROWS = 160  # to whose tokens the directions of variables are fitted
N_PAIRS = 256  # on which they are scored
FAR_PAIRS = 192
LONGER_PAIRS = 64
AS_IT_IS = "answers"  # the claim about the counter with nothing swapped
LONGER = "longer rows"
THIRDS = ("early tokens", "middle tokens", "late tokens")
Key = tuple[str, str]  # names of a hypothesis and of its variable


@dataclass(frozen=True)
class Claim:
    """What a hypothesis says of one intervention, and how often it came out."""

    variable: str  # what is swapped; `answers` where nothing is
    ignored: bool  # whether the swap should change nothing
    place: str  # where it came out best; where it should change nothing, worst
    accuracy: Interval  # where the implied distance occurred in training
    nulls: dict[str, Interval]  # what it has to exceed
    surplus: float  # what it surely explains of that which the best null leaves open
    p_value: float | None = None  # of reaching as much with predictions for other pairs
    outside: dict[str, Interval] | None = None  # the accuracy elsewhere: below 1, beyond, longer rows
    beyond_surplus: float | None = None  # the same as `surplus`, of distances beyond training
    only_fits: dict[str, Interval] | None = None  # of a trained counter that only fits, at its own best place
    by_column: dict[str, Interval] | None = None  # the accuracy by the token's place in the row
    forced: bool = False  # it holds by construction in every counter of this kind that answers right

    @property
    def grade(self) -> str:
        """`strong`, `partial`, `weak` or `none`."""
        return grade(self.surplus if self.p_value is None or self.p_value < ALPHA else 0.0)


class Examination:
    """One counter under all swaps."""

    def __init__(
        self, counter: Transformer, task: Task, hypotheses: Mapping[str, Hypothesis], pairs: int, seed: int
    ) -> None:
        self.counter, self.task, self.seed = counter, task, seed
        self.hypotheses = {
            name: hypothesis for name, hypothesis in hypotheses.items() if hypothesis.swaps_of not in hypotheses
        }
        variables = [
            (name, variable) for name, hypothesis in self.hypotheses.items() for variable in hypothesis.variables
        ]
        self._places = [
            place
            for place in places_of(counter, task, self.hypotheses)
            if any(may_hold(place, name, variable) for name, variable in variables)
        ]
        self._along = variable_directions(counter, task, self.hypotheses, self._places, FIT_ROWS, seed)
        self._seeds = np.random.SeedSequence(seed).generate_state(4).tolist()
        # Where only distances matter there are few places, so that longer rows cost little.
        counted = task.train_length if counter.ignores_shifts else None
        self.searched = self._search(self._swapper("near", SEARCH_PAIRS, self._seeds[0], self._places, counted))
        places = [self.place_of(name, variable) for name, variable in variables]
        self._score = self._swapper("near", pairs, self._seeds[1], places, task.train_length)
        self._far = self._swapper("far", FAR_PAIRS, self._seeds[2], places) if task.period else None
        self._longer = self._longer_rows(places)

    def _swapper(
        self, rows: PairLengths, n_pairs: int, seed: int, places: Sequence[Place], counted: int | None = None
    ) -> Swapper:
        pairs = draw_pairs(self.counter, self.task, self.hypotheses, n_pairs, seed, rows, counted)
        return Swapper(self.counter, pairs, places, self._along)

    def _longer_rows(self, places: Sequence[Place]) -> Swapper | None:
        try:
            return self._swapper("longer", LONGER_PAIRS, self._seeds[3], places)
        except NotApplicable:  # they do not fit the counter's positions
            return None

    def _search(self, search: Swapper) -> dict[Key, dict[Place, float]]:
        """How often each variable's swap comes out at each place that may hold it."""
        shares: dict[Key, dict[Place, float]] = {
            (name, variable.name): {}
            for name, hypothesis in self.hypotheses.items()
            for variable in hypothesis.variables
        }
        for place in self._places:
            claims = [
                (name, hypothesis, variable)
                for name, hypothesis in self.hypotheses.items()
                for variable in hypothesis.variables
                if may_hold(place, name, variable)
            ]
            answers = search.answers(place, claims[0][2])
            for name, hypothesis, variable in claims:
                outcome = _Outcome(answers, search.pairs.predict(self.task, hypothesis, variable, place))
                shares[name, variable.name][place] = outcome.share(TRAINED).value
        return shares

    def place_of(self, hypothesis: str, variable: Variable) -> Place:
        """The place where swaps of the variable come out most often; for an ignored variable, least often."""
        by_place = self.searched[hypothesis, variable.name]
        best = min if variable.ignored else max
        return best(by_place, key=lambda place: by_place[place])

    def answers_claim(self, hypothesis: Hypothesis) -> Claim:
        """The claim that the counter answers as the algorithm does, with nothing swapped."""
        predicted = answer_ids(self.task, hypothesis.outcome(hypothesis.values(self._score.pairs.query)))
        accuracy = share_interval(self._score.own_answers == predicted)
        nulls = {"one answer": constant_null(predicted)}
        return Claim(AS_IT_IS, False, "", accuracy, nulls, surplus(accuracy, nulls.values()))

    def swap_claim(self, name: str, variable: Variable, only_fits: Mapping[Key, Mapping[str, Interval]]) -> Claim:
        """The claim that a swap of the variable comes out as predicted."""
        hypothesis, place = self.hypotheses[name], self.place_of(name, variable)
        near = self._outcome(self._score, hypothesis, variable, place)
        accuracy, (permuted, p_value) = near.share(TRAINED), near.chance(TRAINED, self.seed)
        nulls = {"permuted": permuted}
        if not variable.ignored and place.at in HAS_PLACEBO:
            placebo = self._outcome(self._score, hypothesis, variable, place, self.seed)
            nulls["wrong token" if place.at in ("weight", "turn") else "random directions"] = placebo.share(TRAINED)
        outside, beyond_surplus = {}, None
        reference = only_fits.get((name, variable.name))
        if self._far is not None and not variable.ignored and not variable.is_outcome:
            far = self._outcome(self._far, hypothesis, variable, place)
            outside = {within: far.share(within) for within in (BELOW, BEYOND)}
            chance = [far.chance(BEYOND, self.seed)[0]] + ([reference[BEYOND]] if reference else [])
            beyond_surplus = surplus(outside[BEYOND], chance)
        if self._longer is not None:
            longer = self._outcome(self._longer, hypothesis, variable, place)
            outside[LONGER] = longer.share(BEYOND if self.task.period and not variable.ignored else TRAINED)
        return Claim(
            variable.name,
            variable.ignored,
            place.label,
            accuracy,
            nulls,
            surplus(accuracy, nulls.values()),
            p_value,
            outside,
            beyond_surplus,
            dict(reference) if reference else None,
            self._by_column(near),
            is_forced(self.counter, self.task, place, variable),
        )

    def _by_column(self, outcome: "_Outcome") -> dict[str, Interval]:
        """How often a swap comes out in each third of the longest training row."""
        third = (self._score.pairs.column - self.task.prefix) * len(THIRDS) // max(self.task.train_length, 1)
        telling = outcome.predicted.telling(TRAINED)
        right = outcome.answers == outcome.predicted.answers
        return {name: share_interval(right[telling & (third == index)]) for index, name in enumerate(THIRDS)}

    def _outcome(
        self, swapper: Swapper, hypothesis: Hypothesis, variable: Variable, place: Place, placebo: int | None = None
    ) -> "_Outcome":
        answers = swapper.answers(place, variable, placebo)
        return _Outcome(answers, swapper.pairs.predict(self.task, hypothesis, variable, place))


@dataclass(frozen=True)
class _Outcome:
    """Answers to a swap beside what was predicted."""

    answers: Int[Tensor, "row"]
    predicted: Prediction

    def share(self, within: str) -> Interval:
        """How often the swap comes out, within one range of implied distances."""
        return share_interval((self.answers == self.predicted.answers)[self.predicted.telling(within)])

    def chance(self, within: str, seed: int) -> tuple[Interval, float]:
        """How often predictions for other pairs come out, and the p-value of the swap against them."""
        return permuted_null(self.answers, self.predicted.answers, self.predicted.telling(within), seed)


@lru_cache(maxsize=2)
def only_fits_shares(form: str) -> dict[Key, dict[str, Interval]]:
    """How often swaps come out in a shipped counter that only fits, at its best places; empty if none is shipped.

    It is one fixed measurement, the same for all counters.
    """
    try:
        counter = load_counter(ONLY_FITS[form])
    except (CountLensError, KeyError):
        return {}
    assert isinstance(counter, Transformer)
    task, _ = task_of_counter(counter)
    # Only what says something of distances beyond training is compared with it.
    stated = hypotheses_of(counter, task).items()
    hypotheses = {name: hypothesis for name, hypothesis in stated if hypothesis.reach != "unsaid"}
    examination = Examination(counter, task, hypotheses, SEARCH_PAIRS, seed=0)
    shares = {}
    for name, hypothesis in examination.hypotheses.items():
        for variable in hypothesis.variables:
            claim = examination.swap_claim(name, variable, {})
            shares[name, variable.name] = {TRAINED: claim.accuracy} | (claim.outside or {})
    return shares
