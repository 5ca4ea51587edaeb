"""Modes of a linear recurrence: together they are the state, and only linear families have them."""

import math

import pytest
import torch

from models import load_counter
from probes.mechanism.memory import CounterMemory
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_modes import Modes, clock_modes, slow_modes
from probes.result import NotApplicable, task_of_counter


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
    assert [null.name for null in slow.nulls] == ["as many others", "half of them"]
    assert others.ignored
    clock, _ = clock_modes(bench)
    assert clock.best_null.mean < clock.score.value  # on this counter; it is the nulls that could have won


def test_only_linear_recurrences_have_modes() -> None:
    counter = load_counter("mod10/mamba-1L")
    with pytest.raises(NotApplicable, match="no modes"):
        Modes.of(counter, CounterMemory(counter).parts)
    with pytest.raises(NotApplicable, match="no modes"):
        Modes.of(None, CounterMemory(counter).parts)
