"""Claims against their nulls: what every null does as often is not supported, and few draws say little."""

import pytest
import torch
from planted_memory import RandomTable

from probes.mechanism.memory_claims import DRAWS, FIRST_DRAWS, Judge, MemoryClaim, Null, difference, mean_score
from probes.mechanism.memory_trials import FORMS, Trials
from probes.stats import Interval
from training.tasks import make_task

TASK = make_task("mod10")
MEMORY = RandomTable(TASK, seed=0)


@pytest.fixture(scope="module")
def trials() -> Trials:
    return FORMS["modular"].trials(TASK, MEMORY, 30, torch.Generator().manual_seed(0))


def claim(trials: Trials, nulls: dict[str, list[torch.Tensor]], forced: str = "") -> MemoryClaim:
    judge = Judge(MEMORY, trials, trials.donor_labels)
    return judge.claim(trials.donor, nulls, "count", "everywhere", forced=forced)


def test_a_claim_that_beats_every_draw_is_supported_with_its_margin(trials: Trials) -> None:
    found = claim(trials, {"nothing": [trials.own] * DRAWS})
    assert found.supported
    assert found.score.value == 1
    assert found.nulls == (Null("nothing", 0.0, 0.0, DRAWS, 0.05),)
    assert found.margin.value == 1
    assert 0 < found.margin.low < 1
    assert "+100 points" in found.sentence


def test_a_null_that_does_as_well_wins_and_is_drawn_no_further(trials: Trials) -> None:
    found = claim(trials, {"nothing": [trials.own] * DRAWS, "the same": [trials.donor] * DRAWS})
    assert not found.supported
    assert found.best_null.name == "the same"
    assert found.best_null.draws == FIRST_DRAWS
    assert found.best_null.p == 1


def test_one_draw_in_nineteen_that_does_as_well_is_enough_to_refuse(trials: Trials) -> None:
    found = claim(trials, {"mostly nothing": [*[trials.own] * (DRAWS - 1), trials.donor]})
    assert found.nulls[0].p == 0.1
    assert found.margin.low > 0
    assert not found.supported


def test_few_draws_can_refuse_but_not_say_how_rare_it_is(trials: Trials) -> None:
    below = claim(trials, {"wrong variable": [trials.own]})
    assert below.nulls[0].p is None
    assert below.supported
    assert not claim(trials, {"wrong variable": [trials.donor]}).supported


def test_what_is_forced_is_never_supported(trials: Trials) -> None:
    found = claim(trials, {"nothing": [trials.own] * DRAWS}, forced="it must be so")
    assert not found.supported
    assert found.score.value == 1
    assert "not testable: it must be so" in found.sentence


def test_intervals_have_a_width_even_where_all_trials_agree() -> None:
    all_right, none_right = mean_score(torch.ones(40).double()), mean_score(torch.zeros(40).double())
    assert all_right.low < 0.95
    gap = difference(all_right, none_right)
    assert gap.value == 1
    assert gap.low < 0.9
    assert difference(none_right, none_right).low < 0 < difference(none_right, none_right).high
    assert difference(Interval(0.5, 0.4, 0.6), Interval(0.5, 0.4, 0.6)).value == 0
