"""The maths behind the positional schemes: what is added to the embedding, and how queries and keys are rotated.

`models.schemes` says which scheme uses what.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Table = Float[Tensor, "max_position d_model"]
Columns = Float[Tensor, "d_model"]


def zero_table(max_position: int, d_model: int) -> Table:
    """Zeros: no position is added."""
    return torch.zeros(max_position, d_model)


def wave_rates(columns: int, periods: Sequence[float] | None = None) -> Float[Tensor, "pair"]:
    """The angle by which the wave of each pair of columns goes on from one position to the next.

    The usual wavelengths go from 2 pi to 10000 * 2 pi; `periods` take the place of the first ones.

    >>> (2 * torch.pi / wave_rates(4, (10.0,))).round().tolist()
    [10.0, 628.0]
    """
    rates = 10000.0 ** (-torch.arange(0, columns, 2, dtype=torch.float64) / columns)
    if periods is not None:
        rates[: len(periods)] = 2 * torch.pi / torch.tensor(periods, dtype=torch.float64)
    return rates


def sine_table(max_position: int, d_model: int, periods: Sequence[float] | None = None) -> Table:
    """sin in even and cos in odd columns."""
    angles = torch.outer(torch.arange(max_position, dtype=torch.float64), wave_rates(d_model, periods))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


def scalar_table(max_position: int, d_model: int) -> Table:
    """Zeros but for the last column, which is position / max_position."""
    table = torch.zeros(max_position, d_model)
    table[:, -1] = torch.arange(max_position) / max_position
    return table


def unit_gain(d_model: int) -> Columns:
    """Ones."""
    return torch.ones(d_model)


def root_gain(d_model: int) -> Columns:
    """sqrt(d_model) everywhere: keeps token embeddings as large as the sine table."""
    return torch.full((d_model,), d_model**0.5)


def vacant_last_column(d_model: int) -> Columns:
    """Ones and a final zero: the last column is the position's alone."""
    gain = torch.ones(d_model)
    gain[-1] = 0
    return gain


def rotary_angles(
    max_position: int, d_head: int, periods: Sequence[float] | None = None
) -> Float[Tensor, "max_position d_head"]:
    """The angle by which each column of a head turns at each position; adjacent columns are a pair."""
    angles = torch.outer(torch.arange(max_position, dtype=torch.float64), wave_rates(d_head, periods))
    return angles.repeat_interleave(2, dim=1).float()


def rotate(
    x: Float[Tensor, "batch pos head d_head"],
    cos: Float[Tensor, "batch pos 1 d_head"],
    sin: Float[Tensor, "batch pos 1 d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """Each adjacent pair of columns turned: (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin)."""
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin
