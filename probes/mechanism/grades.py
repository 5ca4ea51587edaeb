"""Grades of a claim: what it surely explains of that which its best null leaves open, as a number and as a word.

A share of 80 % says little if chance, another token, or a counter of another kind reaches 75 %. The *surplus* is

    (lower end of the share's interval - upper end of the null's) / (1 - upper end of the null's)

which is 1 where everything comes out, and 0 or less where the null may explain it all.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from probes.stats import Interval, bounds

STRONG, PARTIAL = 2 / 3, 1 / 3
GRADES = ("none", "weak", "partial", "strong")
SUPPORTED = GRADES[2:]  # of which what the paper says must have one to be confirmed
ALPHA = 0.05
PERMUTATIONS = 1000


def surplus(share: Interval, nulls: Iterable[Interval]) -> float:
    """What a share surely explains of what the best of its nulls leaves open.

    >>> surplus(Interval(0.9, 0.8, 1.0), [Interval(0.1, 0.0, 0.2), Interval(0.5, 0.4, 0.6)])
    0.5
    """
    best = max((null.high for null in nulls), default=0.0)
    return of_what_is_left(share.low - best, best)


def of_what_is_left(lead: float, null: float) -> float:
    """A lead over a null, divided by what that null leaves open; at least -1."""
    return max(-1.0, round(lead / max(1 - null, 1e-9), 6))


def grade(share: float) -> str:
    """The word for a surplus.

    >>> [grade(share) for share in (0.9, 0.5, 0.1, 0.0, -2.0)]
    ['strong', 'partial', 'weak', 'none', 'none']
    """
    return GRADES[(share > 0) + (share >= PARTIAL) + (share >= STRONG)]


def permuted_null(
    answers: Int[Tensor, "row"], predicted: Int[Tensor, "row"], tells: Bool[Tensor, "row"], seed: int
) -> tuple[Interval, float]:
    """How often answers are as predicted for other pairs, and the p-value of the true share against that.

    Predictions change places among the pairs that tell something, so that whatever answers are likely on the whole is
    as likely in the null; the p-value is exact where answers do not depend on the swap.
    """
    here, there = answers[tells].cpu().numpy(), predicted[tells].cpu().numpy()
    if len(here) == 0:
        return Interval(0.0, 0.0, 1.0), 1.0
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(len(here)), (PERMUTATIONS, 1)), axis=1)
    shares = (here == there[orders]).mean(1)
    p_value = (1 + (shares >= (here == there).mean() - 1e-12).sum()) / (1 + PERMUTATIONS)
    low, high = bounds(shares)
    return Interval(float(shares.mean()), float(low), float(high)), float(p_value)


def constant_null(predicted: Int[Tensor, "row"]) -> Interval:
    """How often the most frequent prediction is right, if it is given everywhere."""
    share = float(torch.bincount(predicted[predicted >= 0]).max() / max(len(predicted), 1))
    return Interval(share, share, share)
