"""Anchors of modular counting: where a counter takes the row's beginning from, as functions of the PIDs alone."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

PositionIds = Int[Tensor, "*row pos"]
Distances = Float[Tensor, "*row pos"]

SINGLE_TOKENS = 8  # one of the first so many may be the anchor
BEGINNINGS = (3, 5, 9, 15)  # how many of the first tokens vote; odd, so that one of two beginnings has a majority
REACHES = (1, 2, 4, 8)  # tokens over which a vote fades


@dataclass(frozen=True)
class Anchor:
    """Where a counter takes the row's beginning from."""

    equation: str
    distance: Callable[[PositionIds, int], Distances]  # from the beginning, at every token; the int is the period


def _from_token(index: int, pids: PositionIds, period: int) -> Distances:
    return (pids - pids[..., index : index + 1] + index).double()


def _from_vote(voters: int, pids: PositionIds, period: int) -> Distances:
    """Distances from the beginning that most of the first `voters` tokens imply."""
    implied = pids - torch.arange(pids.shape[-1], device=pids.device)
    return (pids - implied[..., :voters].mode(-1, keepdim=True).values).double()


def _from_circular_mean(reach: int, pids: PositionIds, period: int) -> Distances:
    """Distances from the mean, on a circle of `period` places, of the beginnings that all tokens so far imply.

    A token counts the less the later it comes: e times less after every `reach` tokens.
    """
    place = torch.arange(pids.shape[-1], device=pids.device)
    angles = 2 * torch.pi * (pids - place).double() / period
    vectors = torch.polar(torch.exp(-place.double() / reach).expand(angles.shape), angles)
    beyond = pids - vectors.cumsum(-1).angle() * period / (2 * torch.pi) - place
    # A circle knows no rounds: the distance is the one next to that of a row with nothing moved.
    return place + beyond - period * (beyond / period).round()


def _from_mean(pids: PositionIds, period: int) -> Distances:
    """Distances from a beginning that is as far before the mean PID as the token is after it."""
    return 2 * (pids - pids.double().cumsum(-1) / torch.arange(1, pids.shape[-1] + 1, device=pids.device))


def _from_counting(pids: PositionIds, period: int) -> Distances:
    return torch.arange(pids.shape[-1], device=pids.device).double().expand(pids.shape)


ANCHORS: dict[str, Anchor] = {
    "first token": Anchor("own - first", partial(_from_token, 0)),
    **{
        f"token {index + 1}": Anchor(f"own - PID of token {index + 1} + {index}", partial(_from_token, index))
        for index in range(1, SINGLE_TOKENS)
    },
    **{
        f"beginning of {voters}": Anchor(f"own - what most of the first {voters} imply", partial(_from_vote, voters))
        for voters in BEGINNINGS
    },
    **{
        f"fading beginning ({reach})": Anchor(
            f"own - circular mean of the implied beginnings, weights fading over {reach} tokens",
            partial(_from_circular_mean, reach),
        )
        for reach in REACHES
    },
    "mean": Anchor("2 (own - mean PID so far)", _from_mean),
    "none (own PID)": Anchor("own", lambda pids, period: pids.double()),
    "none (tokens so far)": Anchor("number of tokens before", _from_counting),
}
