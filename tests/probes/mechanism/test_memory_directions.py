"""Directions of planted variables are found apart from each other, and nulls have as many."""

import pytest
import torch

from probes.mechanism.memory_directions import (
    NULLS,
    MemorySpace,
    effects,
    main_directions,
    null_basis,
    split_step,
    strength,
)

GENERATOR = torch.Generator().manual_seed(0)
ONE, TWO = torch.randint(4, (200,), generator=GENERATOR), torch.randint(3, (200,), generator=GENERATOR)
VALUES = {"one": ONE, "two": TWO}
# The first variable has two directions, the second one, which is not at right angles to them.
LEVELS = torch.randn(4, 2, generator=GENERATOR) @ torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
SLANTED = torch.tensor([0.6, 0.0, 0.8])
MEMORIES = LEVELS[ONE] + TWO[:, None] * SLANTED + 1e-3 * torch.randn(200, 3, generator=GENERATOR)


def test_a_step_is_split_between_directions_that_are_not_at_right_angles() -> None:
    space = MemorySpace.of(MEMORIES)
    found = effects(space.coordinates, VALUES)
    one, two = main_directions(found["one"], 2), main_directions(found["two"], 1)
    own, donor = MEMORIES[:50], MEMORIES[50:100]
    step = space.step(own, donor)
    moved = space.moved(own, split_step(step, one, two))
    torch.testing.assert_close(moved, LEVELS[ONE[50:100]] + TWO[:50, None] * SLANTED, atol=0.02, rtol=0)
    moved = space.moved(own, split_step(step, two, one))
    torch.testing.assert_close(moved, LEVELS[ONE[:50]] + TWO[50:100, None] * SLANTED, atol=0.02, rtol=0)


def test_weak_effects_have_no_directions_of_their_own() -> None:
    found = effects(MemorySpace.of(MEMORIES).coordinates, VALUES | {"noise": ONE[torch.randperm(200)]})
    assert strength(found["noise"]) < 0.3 * strength(found["one"])
    assert main_directions(found["noise"], 3, least=0.3 * strength(found["one"])).shape[1] == 0
    assert main_directions(found["one"], 9).shape[1] <= 3


@pytest.mark.parametrize("null", NULLS)
def test_nulls_have_as_many_directions_and_another_at_every_draw(null: str) -> None:
    space, generator = MemorySpace.of(MEMORIES), torch.Generator().manual_seed(1)
    first, second = (null_basis(null, space, VALUES, "one", 2, generator) for _ in range(2))
    for basis in (first, second):
        torch.testing.assert_close(basis.T @ basis, torch.eye(2).double(), atol=1e-6, rtol=0)
    assert (first - second).abs().max() > 0.05


def test_directions_of_shuffled_values_may_span_what_the_true_ones_do() -> None:
    """Memories fill few directions: that is why as many of shuffled values can carry as much."""
    space = MemorySpace.of(MEMORIES)
    true = main_directions(effects(space.coordinates, VALUES)["one"], 2)
    shuffled = null_basis("shuffled", space, VALUES, "one", 2, torch.Generator().manual_seed(1))
    assert (true @ true.T - shuffled @ shuffled.T).abs().max() < 0.05


def test_numbers_that_do_not_vary_are_not_blown_up() -> None:
    constant = torch.full((200, 1), 1000.0) + 1e-4 * torch.randn(200, 1)
    space = MemorySpace.of(torch.cat([MEMORIES, constant], 1))
    assert float(space.distance(space.centre[None], space.centre[None] + torch.tensor([0, 0, 0, 1e-4]))) < 1


def test_a_step_there_is_the_other_memory() -> None:
    space = MemorySpace.of(MEMORIES)
    own, donor = MEMORIES[:10], MEMORIES[10:20]
    torch.testing.assert_close(space.moved(own, space.step(own, donor)), donor, atol=1e-5, rtol=0)
