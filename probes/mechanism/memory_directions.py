"""Directions of a recurrent memory that follow a variable, and directions that a claim about them has to beat.

Memories lie in few of their many dimensions, so that *any* few directions of them carry much: whatever is said of the
directions of a variable must be said against others of the same number. Three nulls can win, and sometimes do:

    shuffled     the directions of the same variable after its values were dealt out again
    covariance   random directions, the more likely the more memories vary along them
    span         random directions of the space that memories fill, all equally likely
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from probes.mechanism.additive_fit import additive_fit
from probes.mechanism.memory import Vectors

Coordinates = Float[Tensor, "row q"]
Basis = Float[Tensor, "q rank"]
Values = Int[Tensor, "sample"]

NULLS = ("shuffled", "covariance", "span")
ROUNDING = 1e-6  # what varies by less than this share of its size does not vary
FILLED = 0.999  # of the variance, by the components that make the span
SPLIT = 1e-3  # directions nearer to parallel than this are not told apart


@dataclass(frozen=True)
class MemorySpace:
    """The space that a sample of memories fills. Every number of a memory is in units of its own spread."""

    centre: Float[Tensor, "d"]
    scale: Float[Tensor, "d"]
    axes: Float[Tensor, "d q"]
    coordinates: Float[Tensor, "sample q"]  # of the sample itself, about its mean

    @classmethod
    def of(cls, vectors: Vectors) -> "MemorySpace":
        """The space of these memories."""
        vectors = vectors.double()
        centre, spread = vectors.mean(0), vectors.std(0)
        scale = torch.maximum(spread, ROUNDING * vectors.abs().amax(0)).clamp(min=1e-30)
        left, singular, axes = torch.linalg.svd((vectors - centre) / scale, full_matrices=False)
        kept = singular > ROUNDING * singular[0]
        return cls(centre, scale, axes[kept].T, left[:, kept] * singular[kept])

    @property
    def spread(self) -> Float[Tensor, "q"]:
        """How much the sample varies along each axis."""
        return self.coordinates.norm(dim=0)

    def step(self, own: Vectors, donor: Vectors) -> Coordinates:
        """The coordinates of the step from one memory to another."""
        return ((donor.double() - own.double()) / self.scale) @ self.axes

    def moved(self, own: Vectors, step: Coordinates) -> Vectors:
        """A memory after a step."""
        return (own.double() + (step @ self.axes.T) * self.scale).to(own.dtype)

    def distance(self, own: Vectors, donor: Vectors) -> Float[Tensor, "row"]:
        """How far two memories are apart, in units of spread."""
        return ((donor.double() - own.double()) / self.scale).norm(dim=1)


def effects(coordinates: Coordinates, values: Mapping[str, Values]) -> dict[str, Float[Tensor, "level q"]]:
    """What each value of each variable adds to memories, when the other variables are held: an additive fit.

    Each is weighted by the root of how often it occurs.
    """
    designs = {
        name: torch.nn.functional.one_hot(value.unique(return_inverse=True)[1]).to(coordinates)
        for name, value in values.items()
    }
    by_variable = {}
    for name, part in additive_fit(designs, coordinates).items():
        counts = designs[name].sum(0)[:, None]
        by_variable[name] = (part - (counts * part).sum(0) / counts.sum()) * counts.sqrt()
    return by_variable


def main_directions(effect: Float[Tensor, "level q"], rank: int, least: float = 0.0) -> Basis:
    """The directions along which effects differ most: at most `rank`, and only where they differ by `least` or more."""
    _, singular, across = torch.linalg.svd(effect, full_matrices=False)
    kept = int((singular > max(least, ROUNDING * float(singular[0]))).sum())
    return across[: min(rank, kept)].T


def strength(effect: Float[Tensor, "level q"]) -> float:
    """How much effects differ along their main direction."""
    return float(torch.linalg.svdvals(effect)[0])


def split_step(step: Coordinates, basis: Basis, others: Float[Tensor, "q n_others"]) -> Coordinates:
    """The part of a step along `basis`, when the step is split between `basis` and `others`.

    They need not be at right angles: of two that are nearly parallel, each takes only what the other cannot.
    """
    inverse = torch.linalg.pinv(torch.cat([basis, others], 1), rtol=SPLIT)
    return (step @ inverse[: basis.shape[1]].T) @ basis.T


def null_basis(
    null: str,
    space: MemorySpace,
    values: Mapping[str, Values],
    variable: str,
    rank: int,
    generator: torch.Generator,
    at_right_angles: bool = True,
) -> Basis:
    """`rank` directions of a null."""
    if null == "shuffled":
        shuffled = values[variable][torch.randperm(len(values[variable]), generator=generator)]
        return main_directions(effects(space.coordinates, {**values, variable: shuffled})[variable], rank)
    spread = space.spread
    if null == "span":
        filled = spread.square().cumsum(0) / spread.square().sum()
        spread = (torch.arange(len(spread)) <= int((filled < FILLED).sum())).double()
    directions = spread[:, None] * torch.randn(len(spread), rank, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(directions)[0] if at_right_angles else directions
