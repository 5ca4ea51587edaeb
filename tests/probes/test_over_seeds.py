"""Seeds as the unit: how many say what, with intervals that are about seeds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from probes.cells import find_cell
from probes.over_seeds import OverSeeds, SeedVerdict, over_seeds
from probes.result import SHARE, Headline
from probes.stats import mean_interval


def verdict(seed: int, label: str, value: float, agrees: bool | None = None) -> SeedVerdict:
    return SeedVerdict(seed, Headline(label, "share", value, value - 0.1, value + 0.1), f"It is {label}.", agrees)


def cell(verdicts: Sequence[SeedVerdict], missing: tuple[int, ...] = ()) -> OverSeeds:
    return OverSeeds("mod10/ape-2L", "anchor", tuple(verdicts), missing, "countlens sweep" if missing else "")


def test_labels_are_counted_and_numbers_averaged() -> None:
    values = [0.5, 0.7, 0.6, 0.9, 0.8]
    found = cell([verdict(n, "first" if n < 3 else "mean", value, n < 3) for n, value in enumerate(values)])
    assert found.labels == {"first": 3, "mean": 2}
    assert (found.mean.value, found.mean.low, found.mean.high) == pytest.approx((0.7, 0.5037, 0.8963), abs=1e-4)
    assert found.agreement.low < 0.3
    assert found.agreement.high > 0.85
    assert found.verdict.agrees is False
    assert "first 3, mean 2" in found.verdict.sentence
    assert "As the paper says in 3 of 5" in found.verdict.sentence
    assert found.headline.label == "first"


def test_one_seed_has_no_interval() -> None:
    found = cell([verdict(0, "first", 0.5, True)])
    assert math.isnan(found.mean.low)
    assert "without an interval over seeds" in found.verdict.sentence
    assert found.agreement.low < 0.25
    assert found.verdict.agrees is True


def test_equal_numbers_have_no_interval_of_zero_width() -> None:
    found = cell([verdict(seed, "first", 1.0) for seed in range(5)])
    assert math.isnan(found.mean.low)
    assert "1 in every seed" in found.verdict.sentence


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Even with three seeds, where 1.96 standard errors would cover it 81 times in 100."""
    generator = np.random.default_rng(0)
    intervals = [mean_interval(generator.normal(0.7, 0.1, 3)) for _ in range(2000)]
    covered = np.mean([interval.low <= 0.7 <= interval.high for interval in intervals])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_shares_stays_within_their_limits() -> None:
    shares = [Headline("first", "share", value, limits=SHARE) for value in (0.59, 0.97, 0.98)]
    found = cell([SeedVerdict(seed, share, "", None) for seed, share in enumerate(shares)])
    assert found.mean.high == 1
    assert 0 < found.mean.low < 0.59


def test_missing_seeds_are_named_with_the_command_that_trains_them() -> None:
    found = cell([verdict(0, "first", 0.5)], missing=(1, 2))
    assert "Not there: seed 1, 2, trained by `countlens sweep`" in found.verdict.sentence
    assert found.to_frame().found.tolist() == [True, False, False]


def test_seeds_that_cannot_be_asked_say_why() -> None:
    found = cell([SeedVerdict(0, None, "It has no attention.", None)])
    assert "No seed of mod10/ape-2L can be probed: It has no attention." in found.verdict.sentence
    assert found.headlines == {}


def test_a_probe_runs_on_the_seeds_of_a_cell() -> None:
    found = over_seeds("behaviour", find_cell("first_tok_heterogeneous/nope-1L", [1, 99]))
    assert [one.seed for one in found.seeds] == [1]
    assert found.missing == (99,)
    assert found.labels == {"fits and extrapolates": 1}
    assert found.to_dict()["seeds"][0]["headline"]["value"] == 100
