"""Modes of a linear recurrence: together they are the state, and only linear families have them."""

import math

import pytest
import torch
from mechanism_nulls import OF_MODES, most_alarms, supported_by_dealt_modes

from models import load_counter
from probes.mechanism.handbuilt_modes import handbuilt_modes
from probes.mechanism.memory import CounterMemory
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_modes import Modes, clock_modes, slow_modes
from probes.mechanism.memory_verdict import MemoryMechanisms, memory_mechanisms
from probes.result import NotApplicable, task_of_counter
from training.tasks import make_task


@pytest.fixture(scope="module")
def bench() -> Bench:
    counter = load_counter("mod10/s4-1L")
    task, _ = task_of_counter(counter)
    return Bench.of(task, CounterMemory(counter), 16, seed=0, counter=counter)


def test_all_modes_together_are_the_donors_memory_and_any_choice_is_real(bench: Bench) -> None:
    modes, trials = Modes.of(bench.counter, bench.memory.parts), bench.trials
    amounts = modes.amounts(trials.donor.double() - trials.own.double())
    everything = torch.ones(modes.eigenvalues.shape, dtype=torch.bool)
    torch.testing.assert_close(modes.moved(trials.own, amounts, everything), trials.donor, atol=1e-4, rtol=1e-4)
    assert torch.equal(modes.moved(trials.own, amounts, ~everything), trials.own)
    chosen = modes.random_key(torch.Generator().manual_seed(0)) < 0.5
    share = torch.einsum("dsm,rdm->rds", modes.vectors, amounts * chosen)
    assert share.imag.abs().max() < 1e-6 * share.real.abs().max()


def test_one_step_turns_and_shrinks_a_mode_as_its_eigenvalue_says(bench: Bench) -> None:
    modes = Modes.of(bench.counter, bench.memory.parts)
    matrices = bench.counter.blocks[0].mixer.transition_matrices().detach()
    moved = matrices.to(modes.vectors.dtype) @ modes.vectors
    torch.testing.assert_close(moved, modes.vectors * modes.eigenvalues[:, None], atol=1e-8, rtol=0)
    assert modes.nearest(10)[modes.turning.sub(2 * math.pi / 10).abs() < 1e-2].max() < 1e-2


def test_claims_about_modes_have_nulls_of_as_many_modes(bench: Bench) -> None:
    slow, others = slow_modes(bench)
    assert [null.name for null in slow.nulls] == ["as many others", "half of them", "the clocks among them"]
    assert others.ignored
    clock, _ = clock_modes(bench)
    assert [null.name for null in clock.nulls] == ["as many others", "clocks of other periods", "as many that last"]
    assert clock.best_null.mean < clock.score.value  # on this counter; it is the nulls that could have won


def test_only_linear_recurrences_have_modes() -> None:
    counter = load_counter("mod10/mamba-1L")
    with pytest.raises(NotApplicable, match="no modes"):
        Modes.of(counter, CounterMemory(counter).parts)
    with pytest.raises(NotApplicable, match="no modes"):
        Modes.of(None, CounterMemory(counter).parts)


def examine(mechanism: str) -> MemoryMechanisms:
    return memory_mechanisms(handbuilt_modes(mechanism, make_task("mod10")), OF_MODES)


def grades(result: MemoryMechanisms) -> dict[str, str]:
    return {tested.name: tested.grade for tested in result.supported}


def test_undamped_clocks_are_found_as_clocks_and_not_as_lasting_modes() -> None:
    """They last too, beside modes that last and that nothing reads: without them the others carry nothing."""
    result = examine("clock")
    assert grades(result) == {"clock_modes": "strong"}
    slow = next(tested for tested in result.hypotheses if tested.name == "slow_modes").claims[0]
    assert slow.score.value == 1
    assert slow.best_null.name == "the clocks among them"
    assert slow.best_null.mean == 1


def test_slow_modes_are_found_and_a_counter_without_clocks_has_none_to_test() -> None:
    result = examine("slow")
    assert grades(result) == {"slow_modes": "strong"}
    assert result.skipped == {"clock_modes": "it has no clock modes"}


def test_clocks_that_nothing_reads_are_refused() -> None:
    result = examine("decoy")
    assert grades(result) == {"slow_modes": "strong"}
    clock = next(tested for tested in result.hypotheses if tested.name == "clock_modes").claims
    assert [claim.score.value for claim in clock] == [0, 0]


def test_clocks_that_carry_half_of_the_answers_are_a_weak_claim_and_all_lasting_modes_a_strong_one() -> None:
    assert grades(examine("shared")) == {"slow_modes": "strong", "clock_modes": "weak"}


def share_of_alarms(draws: int) -> float:
    """How often modes that are called slow or clocks by chance are said to carry the count; the worse of the two."""
    alarms = [supported_by_dealt_modes(seed) for seed in range(draws)]
    return max(sum(name in names for names in alarms) / draws for name in OF_MODES)


def test_modes_that_were_dealt_out_again_are_rarely_found() -> None:
    assert share_of_alarms(8) <= 1 / 8


@pytest.mark.slow
def test_modes_that_were_dealt_out_again_raise_false_alarms_in_no_more_than_one_of_twenty() -> None:
    assert share_of_alarms(200) <= most_alarms(200) / 200
