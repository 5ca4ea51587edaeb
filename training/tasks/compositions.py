"""Random compositions: how often each kind occurs in a selective row (paper, section 3.1)."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor

Acceptance = tuple[float, ...]  # P(keep a composition) by its smallest part 0, 1, ...; the last also for larger parts
KEEP_ALL: Acceptance = (1.0,)


def sample_compositions(
    totals: Int[Tensor, "batch"],
    n_parts: int,
    largest: int,
    generator: torch.Generator,
    largest_total: int,
    acceptance: Acceptance = KEEP_ALL,
) -> Int[Tensor, "batch n_parts"]:
    """For each total, `n_parts` random numbers from 0..largest that sum to it; all such lists are equally likely.

    No total may be above `largest_total`: computing that bound here would make the host wait for a GPU in every batch.
    With `acceptance`, which must not fall, a list whose smallest part is m is weighted by acceptance[m].

    The paper draws by stars and bars and rejects lists with too large a part, or by their smallest part. Drawing part
    by part, each from its exact distribution given the remaining total, has the same law and rejects nothing. The
    smallest part needs one more draw: acceptance[m] is a sum of steps, one for each floor up to m, so a floor is drawn
    first, and then a list whose parts are all at least that floor.
    """
    most = min(1 << largest_total.bit_length(), n_parts * largest)  # a power of two, so that few tables are made
    floors, cumulative = (table.to(generator.device) for table in _distributions(n_parts, largest, most, acceptance))
    u = torch.rand(len(totals), 1, generator=generator, device=generator.device)
    floor = (u >= floors[totals]).sum(1)
    left, parts = totals - n_parts * floor, []
    for part in range(n_parts):
        u = torch.rand(len(totals), 1, generator=generator, device=generator.device)
        above_floor = (u >= cumulative[floor, part, left]).sum(1)
        parts.append(above_floor + floor)
        left = left - above_floor
    return torch.stack(parts, 1)


@lru_cache
def _distributions(
    n_parts: int, largest: int, most: int, acceptance: Acceptance
) -> tuple[Float[Tensor, "total lower_floor"], Float[Tensor, "floor n_parts total largest"]]:
    """P(floor <= j) for each total, and P(part - floor <= v) for each floor, part and remaining total."""
    steps = [after - before for before, after in zip((0.0, *acceptance), acceptance, strict=False)]
    weights, tables = [], []
    for floor, step in enumerate(steps):
        ways = _count_compositions(n_parts, largest - floor, most)
        first = n_parts * floor  # what the floor takes of the total
        weights.append([step * ways[-1][total - first] if total >= first else 0.0 for total in range(most + 1)])
        table = torch.ones(n_parts, most + 1, largest)
        table[..., : largest - floor] = torch.tensor(_part_shares(ways, largest - floor))
        tables.append(table)
    floors = [_running_shares(column[:-1], sum(column)) for column in map(list, zip(*weights, strict=True))]
    return torch.tensor(floors).reshape(most + 1, len(steps) - 1), torch.stack(tables)


def _count_compositions(n_parts: int, largest: int, most: int) -> list[list[int]]:
    """ways[m][t] is the number of compositions of t into m parts of 0..largest, as exact integers."""
    ways = [[1] + [0] * most]
    for _ in range(n_parts):
        before = ways[-1]
        ways.append([sum(before[max(0, t - largest) : t + 1]) for t in range(len(before))])
    return ways


def _part_shares(ways: list[list[int]], largest: int) -> list[list[list[float]]]:
    """P(part <= v) for v < largest, for each part and each total that remains for it and the parts after it."""
    n_parts = len(ways) - 1
    table = []
    for part in range(n_parts):
        after, here = [0] * largest + ways[n_parts - part - 1], ways[n_parts - part]
        table.append(
            [_running_shares(after[total + 1 : total + largest + 1][::-1], n_ways) for total, n_ways in enumerate(here)]
        )
    return table


def _running_shares(numbers: Sequence[int | float], whole: int | float) -> list[float]:
    """The running sums of numbers, divided by a whole; all ones if the whole is 0."""
    return [running / whole for running in accumulate(numbers)] if whole else [1.0] * len(numbers)
