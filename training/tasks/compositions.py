"""Uniform random compositions: how often each kind occurs in a selective row (paper, section 3.1)."""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sample_compositions(
    totals: Int[Tensor, "batch"], n_parts: int, largest: int, generator: torch.Generator
) -> Int[Tensor, "batch n_parts"]:
    """For each total, n_parts numbers of 0..largest that sum to it, all such lists being equally likely.

    The paper draws a composition by stars and bars and rejects it if a part is too large. Drawing part by
    part, each from its exact distribution given what is left, gives the same law and rejects nothing.
    """
    cumulative = _part_distributions(n_parts, largest).to(generator.device)
    left, parts = totals, []
    for part in range(n_parts):
        u = torch.rand(len(totals), 1, generator=generator, device=generator.device)
        drawn = (u >= cumulative[part, left]).sum(1)
        parts.append(drawn)
        left = left - drawn
    return torch.stack(parts, 1)


@lru_cache
def _part_distributions(n_parts: int, largest: int) -> Float[Tensor, "n_parts total largest"]:
    """P(part <= v) for each part, given the total that is left for it and the parts after it."""
    ways = [[1] + [0] * (n_parts * largest)]  # ways[m][t]: compositions of t into m bounded parts; exact integers
    for _ in range(n_parts):
        before = ways[-1]
        ways.append([sum(before[max(0, t - largest) : t + 1]) for t in range(len(before))])
    table = torch.ones(n_parts, n_parts * largest + 1, largest)
    for part in range(n_parts):
        after, here = ways[n_parts - part - 1], ways[n_parts - part]
        for total, n_ways in enumerate(here):
            running = 0
            for value in range(largest):
                running += after[total - value] if total >= value else 0
                table[part, total, value] = running / n_ways if n_ways else 1.0
    return table
