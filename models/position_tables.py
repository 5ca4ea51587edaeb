"""The maths of the positional schemes: tables that are added to the embedding, gains, and rotations.

`models.schemes` says which scheme uses which function.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec

import torch
from jaxtyping import Float
from torch import Tensor

PositionTable = Float[Tensor, "max_position d_model"]
Gain = Float[Tensor, "d_model"]


P = ParamSpec("P")


def computed_on_cpu(table: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Makes a table that is computed on the CPU and then moved to the device on which tensors are being made.

    On the device `meta`, where a counter's shapes are worked out, arithmetic would import torch's compiler: 1.3 s.
    """

    @wraps(table)
    def computed(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        device = torch.get_default_device()
        with torch.device("cpu"):
            return table(*args, **kwargs).to(device)

    return computed


def zero_table(max_position: int, d_model: int) -> PositionTable:
    """A table of zeros, which adds nothing."""
    return torch.zeros(max_position, d_model)


def wave_rates(columns: int, periods: Sequence[float] | None = None) -> Float[Tensor, "pair"]:
    """The angle by which the wave of each pair of columns advances per position.

    The usual periods go from 2 pi to 10000 * 2 pi; `periods` replaces the first ones.

    >>> (2 * torch.pi / wave_rates(4, (10.0,))).round().tolist()
    [10.0, 628.0]
    """
    rates = 10000.0 ** (-torch.arange(0, columns, 2, dtype=torch.float64) / columns)
    if periods is not None:
        rates[: len(periods)] = 2 * torch.pi / torch.tensor(periods, dtype=torch.float64)
    return rates


@computed_on_cpu
def sine_table(max_position: int, d_model: int, periods: Sequence[float] | None = None) -> PositionTable:
    """The table of sine waves: sin in even and cos in odd columns."""
    angles = torch.outer(torch.arange(max_position, dtype=torch.float64), wave_rates(d_model, periods))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


@computed_on_cpu
def scalar_table(max_position: int, d_model: int) -> PositionTable:
    """A table of zeros except for its last column, which is position / max_position."""
    table = torch.zeros(max_position, d_model)
    table[:, -1] = torch.arange(max_position) / max_position
    return table


def unit_gain(d_model: int) -> Gain:
    """Ones: the embedding is not scaled."""
    return torch.ones(d_model)


def root_gain(d_model: int) -> Gain:
    """sqrt(d_model) in every column, so that token embeddings are as large as the sine table."""
    return torch.full((d_model,), d_model**0.5)


def vacant_last_column(d_model: int) -> Gain:
    """Ones and a final zero, which keeps the last column free for the position."""
    gain = torch.ones(d_model)
    gain[-1] = 0
    return gain


def rotary_angles(
    max_position: int, d_head: int, periods: Sequence[float] | None = None
) -> Float[Tensor, "max_position d_head"]:
    """The angle by which each column of a head is rotated at each position; two adjacent columns form a pair."""
    angles = torch.outer(torch.arange(max_position, dtype=torch.float64), wave_rates(d_head, periods))
    return angles.repeat_interleave(2, dim=1).float()


@computed_on_cpu
def rotary_waves(
    max_position: int, d_head: int, periods: Sequence[float] | None = None
) -> Float[Tensor, "wave max_position d_head"]:
    """The cosine and the sine of the angles by which heads are rotated."""
    angles = rotary_angles(max_position, d_head, periods)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(
    x: Float[Tensor, "batch pos head d_head"],
    cos: Float[Tensor, "batch pos 1 d_head"],
    sin: Float[Tensor, "batch pos 1 d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """Rotates each pair of adjacent columns: (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin)."""
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin
