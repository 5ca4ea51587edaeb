"""Which stated algorithm a recurrent counter follows, by edits of its memory.

Whole memories are transplanted too, but only to know the ceiling: what follows must be what follows in a row that
begins as the donor's, so that it says how well the counter counts and nothing about how.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from models.counter import Counter
from probes.mechanism.grades import grade
from probes.mechanism.memory import CounterMemory, Remembers
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_claims import MemoryClaim, edit_scores, mean_score
from probes.mechanism.memory_hypotheses import HYPOTHESES, MemoryHypothesis
from probes.mechanism.memory_trials import FORMS
from probes.result import Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Interval
from training.tasks import Task

N_TRIALS = 40


@dataclass(frozen=True)
class TestedMemory:
    """A hypothesis about the memory, and how its claims came out."""

    name: str
    equation: str
    summary: str
    claims: tuple[MemoryClaim, ...]

    @property
    def testable(self) -> bool:
        """Whether any claim that something moves the answers can be tested."""
        return any(not claim.forced and not claim.ignored for claim in self.claims)

    @property
    def supported(self) -> bool:
        """Whether every claim that can be tested is supported."""
        return self.testable and all(claim.supported for claim in self.claims if not claim.forced)

    @property
    def margin(self) -> Interval:
        """The margin of its worst testable claim over the best null."""
        margins = [claim.margin for claim in self.claims if not claim.forced]
        return min(margins, key=lambda margin: margin.value, default=Interval(0.0, 0.0, 0.0))

    @property
    def grade(self) -> str:
        """`strong`, `partial`, `weak` or `none`: that of its worst testable claim (`probes.mechanism.grades`)."""
        return grade(min(claim.surplus for claim in self.claims if not claim.forced) if self.supported else 0.0)

    @property
    def sentence(self) -> str:
        """Its claims in words."""
        name = f"{self.name} ({self.grade})" if self.supported else self.name
        return f"{name}: " + "; ".join(claim.sentence for claim in self.claims)


@dataclass(frozen=True)
class MemoryMechanisms(Result):
    """Every hypothesis about a recurrent counter's memory, with its claims."""

    task: str
    trials: int
    whole: Interval  # answers that go on from a whole memory: forced, the ceiling of every claim
    hypotheses: tuple[TestedMemory, ...]
    skipped: Mapping[str, str]  # hypotheses that make no sense for this counter, and why

    @property
    def supported(self) -> list[TestedMemory]:
        """The hypotheses that beat their nulls, the largest margin first."""
        above = [tested for tested in self.hypotheses if tested.supported]
        return sorted(above, key=lambda tested: -tested.margin.value)

    @property
    def headline(self) -> Headline:
        best = max(self.hypotheses, key=lambda tested: (tested.supported, tested.testable, tested.margin.value))
        label = best.name if best.supported else "none"
        return Headline.of(
            label, "margin of the worst claim of the best algorithm over its best null (share)", best.margin
        )

    @property
    def verdict(self) -> Verdict:
        nearest = max(self.hypotheses, key=lambda tested: (tested.testable, tested.margin.value))
        if self.supported:
            opening = "Above every null: " + " ".join(f"{tested.sentence}." for tested in self.supported)
        elif nearest.testable:
            opening = f"No stated algorithm is above every null. The nearest is {nearest.sentence}."
        else:
            opening = "No stated algorithm can be tested."
        mentioned = [*self.supported, nearest]
        refuted = [tested.name for tested in self.hypotheses if tested.testable and tested not in mentioned]
        also = f" Not above: {', '.join(refuted)}." if refuted else ""
        forced = [tested.name for tested in self.hypotheses if not tested.testable]
        untested = f" Not testable: {', '.join(forced)}." if forced else ""
        would = (
            "a null that is right as often" if self.supported else "a claim that is right more often than every null"
        )
        return Verdict(f"{opening}{also}{untested}", would)

    def to_frame(self) -> pd.DataFrame:
        """One line per claim and null."""
        lines = [
            {
                "hypothesis": tested.name,
                "supported": tested.supported,
                "grade": tested.grade,
                "variable": claim.variable,
                "ignored": claim.ignored,
                "place": claim.place,
                "not_testable": claim.forced,
                "score": claim.score.value,
                "low": claim.score.low,
                "high": claim.score.high,
                "margin": claim.margin.value,
                "margin_low": claim.margin.low,
                "margin_high": claim.margin.high,
                "null": null.name,
                "null_mean": null.mean,
                "null_highest": null.highest,
                "draws": null.draws,
                "p": np.nan if null.p is None else null.p,
            }
            for tested in self.hypotheses
            for claim in tested.claims
            for null in claim.nulls
        ]
        return pd.DataFrame(lines)


def memory_mechanisms(
    counter: Counter,
    hypotheses: Mapping[str, MemoryHypothesis] | None = None,
    trials: int = N_TRIALS,
    seed: int = 0,
) -> MemoryMechanisms:
    """How well algorithms predict what edits of a recurrent counter's memory do: all that are stated, or these."""
    memory = CounterMemory(counter)
    task, _ = task_of_counter(counter)
    return examine(task, memory, hypotheses, trials, seed, counter)


def examine(
    task: Task,
    memory: Remembers,
    hypotheses: Mapping[str, MemoryHypothesis] | None = None,
    trials: int = N_TRIALS,
    seed: int = 0,
    counter: Counter | None = None,
) -> MemoryMechanisms:
    """The same as `memory_mechanisms`, for anything that remembers."""
    if task.form not in FORMS:
        forms = " and ".join(FORMS)
        raise NotApplicable(f"no mechanism is stated for {task.name}: there are some for {forms} counting")
    stated = HYPOTHESES if hypotheses is None else hypotheses
    bench = Bench.of(task, memory, trials, seed, counter)
    whole = edit_scores(memory, bench.trials, [bench.trials.donor], bench.trials.donor_labels)[0]
    results, skipped = [], {}
    for name, hypothesis in stated.items():
        if hypothesis.form != task.form:
            continue
        try:
            results.append(TestedMemory(name, hypothesis.equation, hypothesis.summary, hypothesis.claims(bench)))
        except NotApplicable as error:
            skipped[name] = str(error)
    if not results:
        raise NotApplicable("; ".join(f"{name}: {why}" for name, why in skipped.items()) or "no hypothesis is given")
    return MemoryMechanisms(task.name, len(bench.trials), mean_score(whole), tuple(results), skipped)
