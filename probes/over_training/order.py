"""Which curve rises first, over several runs? In a single run any order can be chance.

In each run, one curve is before another if its rise ends before the other's begins (`over_training.rises`). Over runs,
that is a share with its exact interval. An order is claimed if it holds in most runs and is significantly more frequent
than the opposite order (sign test, 5 %), which takes at least six runs that agree.
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


def order_of(rise: Rise, reference: Rise) -> Order:
    """Whether a rise is before or after a reference in the same run, or overlaps with it."""
    if rise.end <= reference.begin:
        return "before"
    return "after" if reference.end <= rise.begin else "overlapping"


@dataclass(frozen=True)
class CurveOrder:
    """The order of a curve's rise and that of OOD accuracy, over runs."""

    name: str
    orders: tuple[Order, ...]  # by run
    p: float  # p-value of its rise, over all runs

    def share(self, order: Order) -> Interval:
        """The share of runs that have this order, with its exact interval."""
        times, runs = self.orders.count(order), len(self.orders)
        exact = binomtest(times, runs).proportion_ci(CONFIDENCE, "exact")
        return Interval(times / runs, float(exact.low), float(exact.high))

    @property
    def claim(self) -> Order | None:
        """The order of most runs if it is significantly more frequent than the opposite, else None."""
        before, after = self.orders.count("before"), self.orders.count("after")
        if before == after or binomtest(before, before + after).pvalue > ALPHA:
            return None
        order: Order = "before" if before > after else "after"
        return order if self.share(order).value > 0.5 else None

    def say(self) -> str:
        """The curve's order relative to OOD accuracy, as part of a sentence."""
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
    reference_p: float  # p-value of the rise of OOD accuracy
    curves: tuple[CurveOrder, ...]

    @property
    def verdict(self) -> Verdict:
        changes = "more runs: an order holds if most runs have it and the opposite is surely rarer"
        if self.reference_p > ALPHA:
            sentence = f"OOD accuracy has no sure rise over {len(self.runs)} runs (p = {self.reference_p:.2f})."
        else:
            orders = "; ".join(curve.say() for curve in self.curves)
            sentence = f"Over {len(self.runs)} runs, relative to OOD accuracy: {orders}."
        return Verdict(sentence, changes)

    def to_frame(self) -> pd.DataFrame:
        """One line per curve and run."""
        lines = [
            {"curve": curve.name, "run": run, "order": order, "p_rise": curve.p, "claim": curve.claim}
            for curve in self.curves
            for run, order in zip(self.runs, curve.orders, strict=True)
        ]
        return pd.DataFrame(lines, columns=["curve", "run", "order", "p_rise", "claim"])


def order_over_runs(results: Mapping[str, Dynamics], seed: int = 0) -> OrderOverRuns:
    """The orders of the curves of several runs, given by name; curves that some run lacks are left out."""
    runs = list(results.values())
    if len(runs) < 2 or not all(REFERENCE in result.curves for result in runs):
        raise NotApplicable("an order of rises needs OOD accuracy over at least two runs of one kind of counter")
    names = [name for name in runs[0].curves if all(name in result.curves for result in runs)]
    p = {
        name: rise_p([run.curves[name] for run in runs], [run.floors.get(name) for run in runs], seed) for name in names
    }
    curves = tuple(
        CurveOrder(name, tuple(order_of(run.rises[name], run.rises[REFERENCE]) for run in runs), p[name])
        for name in names
        if name != REFERENCE
    )
    return OrderOverRuns(tuple(results), p[REFERENCE], curves)


def order_of_seeds(infos: Mapping[str, CheckpointInfo], results: Mapping[str, Dynamics]) -> OrderOverRuns:
    """The orders over the seeds of one kind of counter; refuses counters that differ in more than their seed."""
    kinds = {repr((info.family, info.model, info.task, info.policy)) for info in infos.values()}
    if len(kinds) > 1:
        raise NotApplicable("an order of rises is over seeds of one kind of counter, and these differ in more")
    return order_over_runs(results)
