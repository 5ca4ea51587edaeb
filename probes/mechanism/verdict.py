"""Which stated algorithm a counter follows, tested by intervention: the paper argues it from pictures.

Every hypothesis (`mechanism.hypotheses`) makes claims: what the counter answers as it is, what it answers when one
variable is swapped between two rows, at whatever place the variable is, what makes no difference, and which tokens tell
where the row begins. *Interchange accuracy* is how often the counter answers as predicted, over pairs where that is
neither row's own answer and where the implied distance occurred in training. Its nulls can win: predictions for other
pairs, the same edit at a wrong token, another anchor and, beyond training, a trained counter that only fits. A claim is
graded by what it surely explains of that which its best null leaves open (`mechanism.grades`), and a hypothesis is as
good as its worst claim.

Swaps of whole rows show that a row's beginning is subtracted, not from which token it is read. So `first_position`,
`later_position` and `vote_position` refine `beginning`, and are told apart by moving the PIDs of single tokens.

What recurrent counters remember is tested in `probes.mechanism.memory_verdict`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd

from models.counter import Counter
from models.transformer import Transformer
from probes.mechanism.anchor_formulas import ANCHORS
from probes.mechanism.anchors import anchor_surplus
from probes.mechanism.examination import AS_IT_IS, LONGER, N_PAIRS, THIRDS, Claim, Examination, only_fits_shares
from probes.mechanism.grades import GRADES, SUPPORTED
from probes.mechanism.hypotheses import Hypothesis, hypotheses_of, papers_claim
from probes.mechanism.moved_positions import ROWS, AnchorHits, anchor_hits
from probes.mechanism.swap_pairs import BELOW, BEYOND, TRAINED
from probes.result import SHARE, Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Interval

MOVED = "moved PIDs"  # the claim about single tokens' position ids


@dataclass(frozen=True)
class Tested:
    """A hypothesis and how its claims came out."""

    name: str
    equation: str
    summary: str
    swaps_of: str  # the hypothesis whose swaps it shares; "" where it has its own
    reach: str  # what it says of distances beyond training
    claims: tuple[Claim, ...]

    @property
    def worst(self) -> Claim:
        """The claim that explains least."""
        return min(self.claims, key=lambda claim: (GRADES.index(claim.grade), claim.surplus))

    @property
    def score(self) -> Interval:
        """A hypothesis is as good as its worst claim."""
        return self.worst.accuracy

    @property
    def reach_holds(self) -> bool:
        """Whether swaps beyond training come out, or fail, as it says."""
        goes_on = [claim.beyond_surplus > 0 for claim in self.claims if claim.beyond_surplus is not None]
        return {"beyond": all(goes_on), "trained": bool(goes_on) and not all(goes_on)}.get(self.reach, True)

    @property
    def grade(self) -> str:
        """Its worst claim's; none where it is wrong about what is beyond training."""
        return self.worst.grade if self.reach_holds else GRADES[0]

    @property
    def is_forced(self) -> bool:
        """Whether it holds by construction, so that it shows nothing of this counter."""
        return any(claim.forced for claim in self.claims)


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
    expected: tuple[str, ...]  # the hypotheses that the paper has for such a counter; it may have none
    no_anchor: str | None  # why no PIDs of single tokens were moved; None where they were

    @property
    def winner(self) -> Tested | None:
        """The algorithm that explains most; None where no hypothesis explains more than its nulls."""
        own = [tested for tested in self.hypotheses if not self._is_refinement(tested)]
        return _best(own)

    @property
    def refinement(self) -> Tested | None:
        """What the moves of single tokens' PIDs add to the winner: which tokens tell where the row begins."""
        winner = self.winner
        if winner is None:
            return None
        return _best(self._refinements_of(winner))

    def _is_refinement(self, tested: Tested) -> bool:
        return bool(tested.swaps_of) and any(claim.variable == MOVED for claim in tested.claims)

    def _refinements_of(self, winner: Tested) -> list[Tested]:
        return [tested for tested in self.hypotheses if self._is_refinement(tested) and tested.swaps_of == winner.name]

    @property
    def headline(self) -> Headline:
        best = self.winner or max(self.hypotheses, key=lambda tested: tested.score.value)
        label = best.name if self.winner is not None else "none"
        return Headline.of(label, "worst claim of the best algorithm (share of swaps)", best.score, SHARE)

    @property
    def verdict(self) -> Verdict:
        winner, refinement = self.winner, self.refinement
        others = ", ".join(
            f"{tested.name} {tested.grade} ({_say(tested.worst)})"
            for tested in self.hypotheses
            if tested not in (winner, refinement) and not self._is_refinement(tested)
        )
        if winner is None:
            best = max(self.hypotheses, key=lambda tested: tested.worst.surplus)
            sentence = (
                f"None of the stated algorithms explains it: the nearest, {best.name}, fails at {_say(best.worst)}"
                f".{'' if best.reach_holds else _beyond(best)}"
            )
            would = "a hypothesis whose every claim comes out surely more often than in its best null"
        else:
            numbers = ", ".join(_say(claim) for claim in winner.claims)
            opening = {
                "strong": "It counts by",
                "partial": "It counts in part by",
                "weak": "Little is explained, most by",
            }
            sentence = f"{opening[winner.grade]} {winner.name}, {winner.equation} ({winner.grade}): {numbers}."
            sentence += _beyond(winner) + self._anchor_sentence(winner)
            sentence += " It must, by construction: this shows nothing." if winner.is_forced else ""
            sentence += f" Others: {others}." if others else ""
            would = f"a claim of {winner.name} that comes out no more often than in its best null"
        supported = [tested.name for tested in self.hypotheses if tested.grade in SUPPORTED]
        agrees = any(name in supported for name in self.expected) if self.expected else None
        return Verdict(sentence, would, agrees)

    def _anchor_sentence(self, winner: Tested) -> str:
        refinements = self._refinements_of(winner)
        if not refinements:
            return ""
        best = self.refinement or max(refinements, key=lambda tested: _moved(tested).surplus)
        opening = "No anchor stands out: the nearest is" if self.refinement is None else "Its anchor:"
        return f" {opening} {best.name} ({best.grade}), {_say(_moved(best))}."

    def to_frame(self) -> pd.DataFrame:
        """One line for each claim of each hypothesis."""
        lines = [
            {
                "hypothesis": tested.name,
                "grade": tested.grade,
                "claim": claim.variable,
                "place": claim.place,
                "accuracy": claim.accuracy.value,
                "low": claim.accuracy.low,
                "high": claim.accuracy.high,
                "claim grade": claim.grade,
                "surplus": claim.surplus,
                "p": claim.p_value,
                "best null": max((null.value for null in claim.nulls.values()), default=None),
                **{name: _value((claim.outside or {}).get(name)) for name in (BELOW, BEYOND, LONGER)},
                **{name: _value((claim.by_column or {}).get(name)) for name in THIRDS},
                **{f"only fits, {name}": _value((claim.only_fits or {}).get(name)) for name in (TRAINED, BEYOND)},
            }
            for tested in self.hypotheses
            for claim in tested.claims
        ]
        return pd.DataFrame(lines)

    def places_frame(self) -> pd.DataFrame:
        """One line for each place where a variable was sought."""
        return pd.DataFrame([vars(place) for place in self.searched])


def _best(hypotheses: list[Tested]) -> Tested | None:
    """The hypothesis of the best grade and, within it, of the highest surplus; what is forced comes last."""

    def rank(tested: Tested) -> tuple[bool, int, float]:
        return not tested.is_forced, GRADES.index(tested.grade), tested.worst.surplus

    return max((tested for tested in hypotheses if tested.grade != GRADES[0]), key=rank, default=None)


def _value(interval: Interval | None) -> float | None:
    return None if interval is None else interval.value


def _moved(tested: Tested) -> Claim:
    return next(claim for claim in tested.claims if claim.variable == MOVED)


def _say(claim: Claim) -> str:
    name, null = max(claim.nulls.items(), key=lambda item: item[1].value)
    value = (
        f"{claim.accuracy.value:.0%} ({claim.accuracy.low:.0%} to {claim.accuracy.high:.0%}; {name} {null.value:.0%})"
    )
    if claim.variable == AS_IT_IS:
        return f"its own answers {value}"
    if claim.ignored:
        return f"{claim.variable} makes no difference {value}"
    return f"{claim.variable} at {claim.place} {value}"


def _beyond(tested: Tested) -> str:
    """What swaps that imply a distance beyond training do."""
    shares = [
        f"{claim.variable} {claim.outside[BEYOND].value:.0%}"
        + (f" ({claim.only_fits[BEYOND].value:.0%} in a counter that only fits)" if claim.only_fits else "")
        for claim in tested.claims
        if claim.outside and claim.beyond_surplus is not None
    ]
    return f" Beyond training: {', '.join(shares)}." if shares else ""


def mechanisms(
    counter: Counter, hypotheses: Mapping[str, Hypothesis] | None = None, pairs: int = N_PAIRS, seed: int = 0
) -> Mechanisms:
    """How well algorithms predict what swaps do to an attention counter: all that are stated, or these."""
    task, _ = task_of_counter(counter)
    stated = hypotheses_of(counter, task) if hypotheses is None else dict(hypotheses)
    assert isinstance(counter, Transformer)
    examination = Examination(counter, task, stated, pairs, seed)
    reaches = any(hypothesis.reach != "unsaid" for hypothesis in stated.values())
    only_fits = only_fits_shares(task.form) if reaches else {}
    hits, no_anchor = _move_positions(counter, stated, seed)
    swaps = {
        name: tuple(examination.swap_claim(name, variable, only_fits) for variable in hypothesis.variables)
        for name, hypothesis in examination.hypotheses.items()
    }
    results = []
    for name, hypothesis in stated.items():
        anchors = [] if hits is None else [anchor for anchor in hypothesis.anchors if anchor in hits.hits]
        if hypothesis.swaps_of in swaps and hypothesis.anchors and not anchors:
            continue  # nothing tells it from the hypothesis that it refines
        claims = (examination.answers_claim(hypothesis), *swaps.get(name, swaps.get(hypothesis.swaps_of, ())))
        if hits is not None and anchors:
            claims += (_anchor_claim(anchors, hits),)
        shared = hypothesis.swaps_of if hypothesis.swaps_of in swaps else ""
        results.append(Tested(name, hypothesis.equation, hypothesis.summary, shared, hypothesis.reach, claims))
    searched = tuple(
        Searched(name, variable, place.label, accuracy)
        for (name, variable), by_place in examination.searched.items()
        for place, accuracy in by_place.items()
    )
    return Mechanisms(task.name, tuple(results), searched, pairs, papers_claim(counter, task), no_anchor)


def _move_positions(
    counter: Transformer, hypotheses: Mapping[str, Hypothesis], seed: int
) -> tuple[AnchorHits | None, str | None]:
    """Answers to moved PIDs, where some hypothesis names an anchor; or why there are none."""
    if not any(hypothesis.anchors for hypothesis in hypotheses.values()):
        return None, "no hypothesis names an anchor"
    try:
        return anchor_hits(counter, ANCHORS, ROWS, seed), None
    except NotApplicable as reason:
        return None, str(reason)


def _anchor_claim(anchors: Collection[str], hits: AnchorHits) -> Claim:
    """That one of these anchors predicts the answers to moved PIDs better than every other anchor does."""
    best = hits.best(anchors)
    wrong, lead = hits.lead(best, [name for name in hits.hits if name not in anchors])
    accuracy, permuted = hits.score(best), hits.permuted(best)
    nulls = {f"wrong anchor, {wrong}": hits.score(wrong)} | ({} if permuted is None else {"permuted": permuted})
    _, at_worst = hits.worst_kind(best)
    return Claim(MOVED, False, best, accuracy, nulls, anchor_surplus(accuracy, permuted, lead, at_worst))
