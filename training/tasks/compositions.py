"""Uniform random compositions: how often each kind occurs in a selective row (paper, section 3.1)."""

from functools import lru_cache
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sample_compositions(
    totals: Int[Tensor, "batch"], n_parts: int, largest: int, generator: torch.Generator, largest_total: int
) -> Int[Tensor, "batch n_parts"]:
    """For each total, n_parts numbers of 0..largest that sum to it, all such lists being equally likely.

    No total is above `largest_total`: reading that off the totals would make the host wait for a GPU at every batch.

    The paper draws a composition by stars and bars and rejects it if a part is too large. Drawing part by
    part, each from its exact distribution given what is left, gives the same law and rejects nothing.
    """
    most = 1 << largest_total.bit_length()  # a power of two, so that few tables are made
    cumulative = _part_distributions(n_parts, largest, min(most, n_parts * largest)).to(generator.device)
    left, parts = totals, []
    for part in range(n_parts):
        u = torch.rand(len(totals), 1, generator=generator, device=generator.device)
        drawn = (u >= cumulative[part, left]).sum(1)
        parts.append(drawn)
        left = left - drawn
    return torch.stack(parts, 1)


@lru_cache
def _part_distributions(n_parts: int, largest: int, most: int) -> Float[Tensor, "n_parts total largest"]:
    """P(part <= v) for each part, given the total, up to `most`, that is left for it and the parts after it."""
    ways = [[1] + [0] * most]  # ways[m][t]: compositions of t into m bounded parts; exact integers
    for _ in range(n_parts):
        before = ways[-1]
        ways.append([sum(before[max(0, t - largest) : t + 1]) for t in range(len(before))])
    table = []
    for part in range(n_parts):
        after, here = [0] * largest + ways[n_parts - part - 1], ways[n_parts - part]
        table.append(
            [_shares(after[total + 1 : total + largest + 1][::-1], n_ways) for total, n_ways in enumerate(here)]
        )
    return torch.tensor(table)


def _shares(numbers: list[int], whole: int) -> list[float]:
    """Running sums as parts of a whole; all ones where there is nothing to share."""
    return [running / whole for running in accumulate(numbers)] if whole else [1.0] * len(numbers)
