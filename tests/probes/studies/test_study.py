"""A protocol is data, its claims can come out either way, and every study keeps to its own protocol."""

from dataclasses import replace

import pytest

from probes.stats import Interval
from probes.studies.registry import STUDIES, get_study
from probes.studies.study import FIRST_SEED, JudgedClaim, Series, StudyClaim, overall_status
from training.sweep.grid import SweepRun

ABOVE = StudyClaim("above", "It is above 1.", "above", 1.0, "it is surely below 1")
BELOW = replace(ABOVE, name="below", side="below")


@pytest.mark.parametrize(
    ("claim", "low", "high", "status"),
    [
        (ABOVE, 1.1, 2.0, "supported"),
        (ABOVE, 0.9, 2.0, "undecided"),
        (ABOVE, 0.1, 0.9, "refuted"),
        (BELOW, 1.1, 2.0, "refuted"),
        (BELOW, 0.9, 2.0, "undecided"),
        (BELOW, 0.1, 0.9, "supported"),
    ],
)
def test_a_claim_is_judged_by_its_whole_interval(claim: StudyClaim, low: float, high: float, status: str) -> None:
    assert JudgedClaim(claim, Interval((low + high) / 2, low, high)).status == status


def test_a_claim_that_was_not_measured_is_undecided() -> None:
    assert JudgedClaim(ABOVE, None).status == "undecided"


@pytest.mark.parametrize(
    ("statuses", "overall"),
    [
        ((2.0, 2.0), "supported"),
        ((2.0, 0.0), "refuted"),
        ((2.0, None), "undecided"),
        ((0.0, None), "refuted"),
        ((), "undecided"),
    ],
)
def test_one_refuted_primary_claim_refutes_the_hypothesis(statuses: tuple[float | None, ...], overall: str) -> None:
    minor = JudgedClaim(replace(ABOVE, is_primary=False), Interval(0.0, 0.0, 0.0))
    primary = [JudgedClaim(ABOVE, None if value is None else Interval(value, value, value)) for value in statuses]
    assert overall_status((minor, *primary)) == overall


def test_a_series_has_a_number_for_every_x() -> None:
    with pytest.raises(ValueError, match="2 x, 1 numbers and 0 names"):
        Series("x", (1.0, 2.0), (Interval(0.0, 0.0, 0.0),))


def test_an_unknown_study_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown study 'rope_period': did you mean rope_periods"):
        get_study("rope_period")


def test_studies_have_pages_of_their_own() -> None:
    assert sorted(study.number for study in STUDIES.values()) == [1, 2, 3]
    digests = {study.protocol.digest for study in STUDIES.values()}
    assert len(digests) == len(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_no_recipe_was_chosen_on_a_studys_seeds_and_every_point_has_ten(name: str) -> None:
    runs = STUDIES[name].runs()
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.name.rpartition("/")[0], set()).add(run.config.seed)
    assert min(min(one) for one in seeds.values()) >= FIRST_SEED
    assert min(len(one) for one in seeds.values()) >= 10


@pytest.mark.parametrize("name", STUDIES)
def test_a_quick_study_is_part_of_the_full_one(name: str) -> None:
    quick, full = (_by_name(STUDIES[name].runs(one)) for one in (True, False))
    assert quick.keys() < full.keys()
    assert all(full[run] == config for run, config in quick.items())


def _by_name(runs: list[SweepRun]) -> dict[str, object]:
    return {run.name: run.config for run in runs}


@pytest.mark.parametrize("name", STUDIES)
def test_runs_come_seed_by_seed(name: str) -> None:
    seeds = [run.config.seed for run in STUDIES[name].runs()]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_studys_settings_say_is_among_its_columns(name: str) -> None:
    study = STUDIES[name]
    for run in study.runs(quick=True):
        assert study.factors(run.config).keys() < study.protocol.measured.keys()


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_beforehand_what_would_refute_it(name: str) -> None:
    protocol = STUDIES[name].protocol
    assert any(claim.is_primary for claim in protocol.claims)
    assert all(claim.refuted_by for claim in protocol.claims)
    assert len({claim.name for claim in protocol.claims}) == len(protocol.claims)


def test_another_threshold_is_another_protocol() -> None:
    protocol = STUDIES["rope_periods"].protocol
    first, *others = protocol.claims
    assert replace(protocol, claims=(replace(first, threshold=14), *others)).digest != protocol.digest


def test_study_one_has_sixty_fresh_seeds_and_more() -> None:
    assert len(STUDIES["predicting_ood"].runs()) >= 60
