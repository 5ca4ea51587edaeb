"""One probe on all seeds of a cell: another training run may give another answer, so seeds are the unit.

The probe is run on the counter of each seed as usual. Then the headlines of the results are compared: how many seeds
have which label, and the mean of their numbers with an interval over seeds (Student's t). The interval of a single
counter says how the number varies over rows; the interval over seeds says how it varies over training runs.
"""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from probes.cells import CellSeeds
from probes.registry import PROBES, Subject, load_subject
from probes.result import Headline, NotApplicable, Result, Verdict
from probes.stats import Interval, mean_interval, share_interval


@dataclass(frozen=True)
class SeedVerdict:
    """The outcome of a probe on one seed."""

    seed: int  # of the training run
    headline: Headline | None  # None if the probe does not apply to this counter
    sentence: str  # the verdict, or the reason why the probe does not apply
    agrees: bool | None  # with the paper; None if the paper makes no claim


@dataclass(frozen=True)
class OverSeeds(Result):
    """The outcomes of a probe on all seeds of a cell."""

    cell: str
    probe: str
    seeds: tuple[SeedVerdict, ...]
    missing: tuple[int, ...]  # seeds without weights
    command: str  # trains the missing seeds

    @property
    def headlines(self) -> dict[int, Headline]:
        """The headlines by seed, of the seeds to which the probe applies."""
        return {seed.seed: seed.headline for seed in self.seeds if seed.headline is not None}

    @property
    def labels(self) -> dict[str, int]:
        """How many seeds have each label, the most frequent label first."""
        return dict(Tally(headline.label for headline in self.headlines.values()).most_common())

    @property
    def agreement(self) -> Interval:
        """The share of seeds that have the most frequent label, with Wilson's interval."""
        most = next(iter(self.labels), None)
        return share_interval(torch.tensor([headline.label == most for headline in self.headlines.values()]))

    @property
    def mean(self) -> Interval:
        """The mean of the numbers over seeds; its bounds are NaN for one seed, or if all numbers are equal."""
        mean = mean_interval(np.array([headline.value for headline in self.headlines.values()], dtype=float))
        lowest, highest = next((headline.limits for headline in self.headlines.values()), (-np.inf, np.inf))
        return replace(mean, low=max(mean.low, lowest), high=min(mean.high, highest))

    @property
    def measure(self) -> str:
        """What the numbers measure; several names joined by a slash if seeds differ in it."""
        return " / ".join(dict.fromkeys(headline.measure for headline in self.headlines.values() if headline.measure))

    @property
    def headline(self) -> Headline:
        return Headline(next(iter(self.labels), "not applicable"), self.measure, *vars(self.mean).values())

    @property
    def verdict(self) -> Verdict:
        number = len(self.headlines)
        if number == 0:
            reasons = " ".join(dict.fromkeys(seed.sentence for seed in self.seeds))
            return Verdict(f"No seed of {self.cell} can be probed: {reasons}{self._missing()}", "other weights")
        counts = ", ".join(f"{label} {times}" for label, times in self.labels.items())
        share = self.agreement
        sentence = (
            f"{number} {'seed' if number == 1 else 'seeds'} of {self.cell}: {counts} "
            f"(the most frequent in {share.low:.0%} to {share.high:.0%} of such seeds){self._number()}."
        )
        claims = [seed.agrees for seed in self.seeds if seed.agrees is not None]
        if claims:
            sentence += f" As the paper says in {sum(claims)} of {len(claims)}."
        return Verdict(
            sentence + self._missing(), "other labels on more seeds of the cell", all(claims) if claims else None
        )

    def _number(self) -> str:
        """The mean of the numbers as part of the verdict; empty if there are none."""
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
        """The missing seeds and how to train them, as part of the verdict; empty if none is missing."""
        if not self.missing:
            return ""
        named = ", ".join(map(str, self.missing))
        return f" Not there: seed {named}" + (f", trained by `{self.command}`." if self.command else ".")

    def to_frame(self) -> pd.DataFrame:
        """One line per seed, missing ones included."""
        lines = [
            {"seed": seed.seed, "found": True, "agrees": seed.agrees}
            | (vars(seed.headline) if seed.headline is not None else {})
            | {"sentence": seed.sentence}
            for seed in self.seeds
        ]
        lines += [{"seed": seed, "found": False} for seed in self.missing]
        columns = ["seed", "found", "label", "value", "low", "high", "measure", "agrees", "sentence"]
        return pd.DataFrame(lines).reindex(columns=columns)


def over_seeds(probe: str, cell: CellSeeds, seed: int = 0, progress: bool = False) -> OverSeeds:
    """The outcomes of a probe on every seed of a cell; the probe's own random draws use `seed` for all of them."""
    bar = tqdm(cell.files.items(), disable=not progress, unit="seed", dynamic_ncols=True, desc=f"{cell.name} {probe}")
    return gather(probe, cell, [probe_seed(probe, number, load_subject(path), seed) for number, path in bar])


def probe_seed(probe: str, number: int, subject: Subject, seed: int) -> SeedVerdict:
    """The outcome of a probe on the counter that was trained with seed `number`."""
    try:
        result = PROBES[probe].run(subject, seed)
    except NotApplicable as reason:
        return SeedVerdict(number, None, str(reason), None)
    return SeedVerdict(number, result.headline, result.verdict.sentence, result.verdict.agrees)


def gather(probe: str, cell: CellSeeds, verdicts: Sequence[SeedVerdict]) -> OverSeeds:
    """The result that the verdicts of a cell's seeds make together."""
    return OverSeeds(cell.name, probe, tuple(verdicts), cell.missing, cell.command)
