"""What comes first, over several runs? In one run anything may have come first by chance.

In each run, one curve is before another if its rise ends before the other's begins (`over_training.rises`). Over runs,
that is a share with its exact interval. It is a claim where it is so in most runs, and where the opposite is so much
rarer that chance would not do it (sign test, 5 %): that takes six runs that agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from scipy.stats import binomtest

from models.header import CheckpointInfo
from probes.over_training.dynamics import REFERENCE, Dynamics
from probes.over_training.rises import Rise, rise_p
from probes.result import NotApplicable, Result, Verdict
from probes.stats import ALPHA, CONFIDENCE, Interval

Order = Literal["before", "after", "overlapping"]


def order_of(one: Rise, other: Rise) -> Order:
    """Of two rises in the same run."""
    if one.end <= other.begin:
        return "before"
    return "after" if other.end <= one.begin else "overlapping"


@dataclass(frozen=True)
class CurveOrder:
    """When a curve rises relative to OOD accuracy, over runs."""

    name: str
    orders: tuple[Order, ...]  # by run
    p: float  # of its rise, over all runs

    def share(self, order: Order) -> Interval:
        """Of the runs, with its exact interval."""
        times, runs = self.orders.count(order), len(self.orders)
        exact = binomtest(times, runs).proportion_ci(CONFIDENCE, "exact")
        return Interval(times / runs, float(exact.low), float(exact.high))

    @property
    def claim(self) -> Order | None:
        """The order of most runs, where it is surely more frequent than the opposite."""
        before, after = self.orders.count("before"), self.orders.count("after")
        if before == after or binomtest(before, before + after).pvalue > ALPHA:
            return None
        order: Order = "before" if before > after else "after"
        return order if self.share(order).value > 0.5 else None

    def say(self) -> str:
        """Name, numbers, and what they amount to."""
        if self.p > ALPHA:
            return f"{self.name} has no sure rise (p = {self.p:.2f})"
        more: Order = "before" if self.orders.count("before") >= self.orders.count("after") else "after"
        shown = self.claim or more
        share = self.share(shown)
        verdict = f"rises {shown} it" if self.claim else "has no sure order with it"
        return (
            f"{self.name} {verdict} ({shown} it in {self.orders.count(shown)} of {len(self.orders)} runs: "
            f"{share.value:.0%}, {share.low:.0%} to {share.high:.0%})"
        )


@dataclass(frozen=True)
class OrderOverRuns(Result):
    """Which curves rise before or after OOD accuracy, over runs of one kind of counter."""

    runs: tuple[str, ...]
    reference_p: float  # of the rise of OOD accuracy
    curves: tuple[CurveOrder, ...]

    @property
    def verdict(self) -> Verdict:
        changes = "more runs: an order holds where most runs have it and the opposite is surely rarer"
        if self.reference_p > ALPHA:
            sentence = f"OOD accuracy has no sure rise over {len(self.runs)} runs (p = {self.reference_p:.2f})."
        else:
            said = "; ".join(curve.say() for curve in self.curves)
            sentence = f"Over {len(self.runs)} runs, relative to OOD accuracy: {said}."
        return Verdict(sentence, changes)

    def to_frame(self) -> pd.DataFrame:
        """One line a curve and run."""
        lines = [
            {"curve": curve.name, "run": run, "order": order, "p_rise": curve.p, "claim": curve.claim}
            for curve in self.curves
            for run, order in zip(self.runs, curve.orders, strict=True)
        ]
        return pd.DataFrame(lines, columns=["curve", "run", "order", "p_rise", "claim"])


def order_over_runs(results: Mapping[str, Dynamics], seed: int = 0) -> OrderOverRuns:
    """Orders over the curves of several runs, by the name of the run; curves that not all of them have are left out."""
    found = list(results.values())
    if len(found) < 2 or not all(REFERENCE in result.curves for result in found):
        raise NotApplicable("an order of rises needs OOD accuracy over at least two runs of one kind of counter")
    names = [name for name in found[0].curves if all(name in result.curves for result in found)]
    p = {
        name: rise_p([run.curves[name] for run in found], [run.floors.get(name) for run in found], seed)
        for name in names
    }
    curves = tuple(
        CurveOrder(name, tuple(order_of(run.rises[name], run.rises[REFERENCE]) for run in found), p[name])
        for name in names
        if name != REFERENCE
    )
    return OrderOverRuns(tuple(results), p[REFERENCE], curves)


def order_of_seeds(infos: Mapping[str, CheckpointInfo], results: Mapping[str, Dynamics]) -> OrderOverRuns:
    """The same, where the counters differ in nothing but their seed."""
    kinds = {repr((info.family, info.model, info.task, info.policy)) for info in infos.values()}
    if len(kinds) > 1:
        raise NotApplicable("an order of rises is over seeds of one kind of counter, and these differ in more")
    return order_over_runs(results)
