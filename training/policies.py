"""The one registry of position policies, which give each row its position ids (paper, section 2.2)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from models.errors import unknown
from models.shapes import Lengths, PositionIds


@dataclass(frozen=True)
class Policy:
    """How a policy draws position ids and, if they are consecutive, how many shifts it draws from.

    `draw` takes the lengths of rows, the number of columns, max_position and a generator, and returns the ids.
    `count_offsets` takes lengths and max_position. It returns how many first ids a row of each length can have; all
    from 0 up to this number are equally likely. It is None if the ids of a row are not consecutive.
    """

    draw: Callable[[Lengths, int, int, torch.Generator], PositionIds]
    count_offsets: Callable[[Lengths, int], Lengths] | None = None


def draw_contiguous(lengths: Lengths, n_pos: int, max_position: int, generator: torch.Generator) -> PositionIds:
    """Position ids 0, 1, 2, ... in every row."""
    return torch.arange(n_pos, device=lengths.device).expand(len(lengths), -1)


def draw_shifted(lengths: Lengths, n_pos: int, max_position: int, generator: torch.Generator) -> PositionIds:
    """Consecutive ids from a random offset per row. As in the paper, only rows that must use the last id do."""
    room = count_offsets(lengths, max_position)
    offsets = (torch.rand(lengths.shape, generator=generator, device=generator.device) * room).long()
    ids = offsets[:, None] + torch.arange(n_pos, device=lengths.device)
    return ids.clamp(max=max_position - 1)  # only padding goes beyond


def count_offsets(lengths: Lengths, max_position: int) -> Lengths:
    """How many different offsets a shifted row of each length can have: those from 0 to max_position - 1 - length."""
    return (max_position - lengths).clamp(min=1)


def draw_randomised(lengths: Lengths, n_pos: int, max_position: int, generator: torch.Generator) -> PositionIds:
    """A random set of different position ids per row, in ascending order; all sets are equally likely."""
    order = torch.rand(len(lengths), max_position, generator=generator, device=generator.device).argsort(1)
    unused = torch.arange(max_position, device=lengths.device) >= lengths[:, None]
    ids = order.masked_fill(unused, max_position - 1).sort(1).values
    return ids[:, :n_pos]


CONTIGUOUS = "contiguous"
POLICIES: dict[str, Policy] = {
    CONTIGUOUS: Policy(draw_contiguous, lambda lengths, max_position: torch.ones_like(lengths)),
    "shifted": Policy(draw_shifted, count_offsets),
    "randomised": Policy(draw_randomised),
}


def get_policy(name: str) -> Policy:
    """The position policy of this name."""
    if name not in POLICIES:
        raise unknown("position policy", name, POLICIES)
    return POLICIES[name]
