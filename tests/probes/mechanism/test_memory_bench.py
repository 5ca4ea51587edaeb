"""What claims are tested with: weak variables have no directions, and edits that prove nothing are named."""

import pytest
from planted_memory import Turning

from probes.mechanism.memory_bench import Bench
from training.tasks import make_task

TASK = make_task("mod10")


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench.of(TASK, Turning(TASK), 20, seed=0)


def test_a_drift_has_directions_and_a_variable_without_effect_has_none(bench: Bench) -> None:
    assert bench.clear_directions("drift", 9).shape[1] >= 1
    assert bench.clear_directions("ring", 2).shape[1] == 2


def test_an_edit_that_is_the_donors_memory_or_its_own_proves_nothing(bench: Bench) -> None:
    trials = bench.trials
    assert "all of the donor's memory" in bench.why_forced(trials.donor, ignored=False)
    assert "nothing is moved" in bench.why_forced(trials.own, ignored=True)
    halfway = (trials.own + trials.donor) / 2
    assert not bench.why_forced(halfway, ignored=False)
    assert not bench.why_forced(halfway, ignored=True)
    assert bench.left(halfway) == pytest.approx(0.5, abs=1e-3)


def test_null_directions_come_as_often_as_draws_are_wanted(bench: Bench) -> None:
    assert len(list(bench.null_bases("span", "ring", 2))) == bench.draws
    assert all(basis.shape == (len(bench.space.spread), 2) for basis in bench.null_bases("covariance", "ring", 2))
