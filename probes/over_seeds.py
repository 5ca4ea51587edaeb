"""A probe asked of a cell: one training run says little about the next, so seeds are the unit.

Each seed is a counter of its own, on which the probe is run as ever. What is compared are the headlines: how many seeds
say what, and the mean of their numbers with an interval over seeds (Student's t). The interval of one counter is about
other rows; that over seeds is about other training runs.
"""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from probes.cells import Cell
from probes.registry import PROBES, Subject, load_subject
from probes.result import Headline, NotApplicable, Result, Verdict
from probes.stats import Interval, mean_interval, share_interval


@dataclass(frozen=True)
class SeedVerdict:
    """What a probe says of one seed."""

    seed: int  # of its training
    headline: Headline | None  # None: the probe makes no sense for it
    sentence: str  # the verdict, or why there is none
    agrees: bool | None  # with the paper


@dataclass(frozen=True)
class OverSeeds(Result):
    """What a probe says of every seed of a cell."""

    cell: str
    probe: str
    seeds: tuple[SeedVerdict, ...]
    missing: tuple[int, ...]  # seeds without weights
    command: str  # that trains them

    @property
    def headlines(self) -> dict[int, Headline]:
        """By seed, where the probe makes sense."""
        return {one.seed: one.headline for one in self.seeds if one.headline is not None}

    @property
    def labels(self) -> dict[str, int]:
        """How many seeds say what, from the most frequent label on."""
        return dict(Tally(headline.label for headline in self.headlines.values()).most_common())

    @property
    def agreement(self) -> Interval:
        """Share of seeds with the most frequent label, with Wilson's interval."""
        most = next(iter(self.labels), None)
        return share_interval(torch.tensor([headline.label == most for headline in self.headlines.values()]))

    @property
    def mean(self) -> Interval:
        """Of the numbers, over seeds; NaN bounds for one seed, or where all have the same number."""
        mean = mean_interval(np.array([headline.value for headline in self.headlines.values()], dtype=float))
        lowest, highest = next((headline.limits for headline in self.headlines.values()), (-np.inf, np.inf))
        return replace(mean, low=max(mean.low, lowest), high=min(mean.high, highest))

    @property
    def measure(self) -> str:
        """What the numbers are; several, if it is not the same for all seeds."""
        return " / ".join(dict.fromkeys(headline.measure for headline in self.headlines.values() if headline.measure))

    @property
    def headline(self) -> Headline:
        return Headline(next(iter(self.labels), "not applicable"), self.measure, *vars(self.mean).values())

    @property
    def verdict(self) -> Verdict:
        number = len(self.headlines)
        if number == 0:
            reasons = " ".join(dict.fromkeys(one.sentence for one in self.seeds))
            return Verdict(f"No seed of {self.cell} can be asked: {reasons}{self._missing()}", "other weights")
        told = ", ".join(f"{label} {times}" for label, times in self.labels.items())
        share = self.agreement
        sentence = (
            f"{number} {'seed' if number == 1 else 'seeds'} of {self.cell}: {told} "
            f"(the most frequent in {share.low:.0%} to {share.high:.0%} of such seeds){self._number()}."
        )
        claims = [one.agrees for one in self.seeds if one.agrees is not None]
        if claims:
            sentence += f" As the paper says in {sum(claims)} of {len(claims)}."
        return Verdict(
            sentence + self._missing(), "other labels on more seeds of the cell", all(claims) if claims else None
        )

    def _number(self) -> str:
        values = [headline.value for headline in self.headlines.values() if np.isfinite(headline.value)]
        if not values:
            return ""
        mean = self.mean
        if len(values) == 1:
            return f"; {self.measure} {mean.value:.3g}, without an interval over seeds"
        between = f"from {min(values):.3g} to {max(values):.3g}"
        if np.isnan(mean.low):
            return f"; {self.measure} {mean.value:.3g} in every seed"
        return f"; {self.measure} {mean.value:.3g} in the mean ({mean.low:.3g} to {mean.high:.3g}), seeds {between}"

    def _missing(self) -> str:
        if not self.missing:
            return ""
        named = ", ".join(map(str, self.missing))
        return f" Not there: seed {named}" + (f", trained by `{self.command}`." if self.command else ".")

    def to_frame(self) -> pd.DataFrame:
        """One line a seed, those that are missing too."""
        lines = [
            {"seed": one.seed, "found": True, "agrees": one.agrees}
            | (vars(one.headline) if one.headline is not None else {})
            | {"sentence": one.sentence}
            for one in self.seeds
        ]
        lines += [{"seed": seed, "found": False} for seed in self.missing]
        columns = ["seed", "found", "label", "value", "low", "high", "measure", "agrees", "sentence"]
        return pd.DataFrame(lines).reindex(columns=columns)


def over_seeds(probe: str, cell: Cell, seed: int = 0, progress: bool = False) -> OverSeeds:
    """Runs a probe on every seed of a cell; `seed` is of what the probe draws, the same for all counters."""
    bar = tqdm(cell.files.items(), disable=not progress, unit="seed", dynamic_ncols=True, desc=f"{cell.name} {probe}")
    return gather(probe, cell, [ask_counter(probe, number, load_subject(path), seed) for number, path in bar])


def ask_counter(probe: str, number: int, subject: Subject, seed: int) -> SeedVerdict:
    """What a probe says of the counter that was trained with seed `number`."""
    try:
        result = PROBES[probe].run(subject, seed)
    except NotApplicable as reason:
        return SeedVerdict(number, None, str(reason), None)
    return SeedVerdict(number, result.headline, result.verdict.sentence, result.verdict.agrees)


def gather(probe: str, cell: Cell, verdicts: Sequence[SeedVerdict]) -> OverSeeds:
    """The verdicts of a cell's seeds as one result."""
    return OverSeeds(cell.name, probe, tuple(verdicts), cell.missing, cell.command)
