"""The five positional schemes as data: what each adds to the embedding, and whether it rotates.

All additive schemes are one table, `W_pos[position_id]`, and a gain on the columns of `W_E`; so every
scheme fits HookedTransformer's format exactly (paper, section 2.2).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Table = Float[Tensor, "max_position d_model"]
Columns = Float[Tensor, "d_model"]


@dataclass(frozen=True)
class Scheme:
    """How positions enter a transformer."""

    summary: str
    table: Callable[[int, int], Table] | None  # (max_position, d_model) -> fixed W_pos; None: no W_pos at all
    gain: Callable[[int], Columns]  # d_model -> what each column of W_E is multiplied by
    learned: bool = False  # W_pos is trained, starting from N(0, init_std)
    rotary: bool = False  # queries and keys are rotated by their position


def zero_table(max_position: int, d_model: int) -> Table:
    """Zeros: no position is added."""
    return torch.zeros(max_position, d_model)


def sine_table(max_position: int, d_model: int) -> Table:
    """sin in even and cos in odd columns, wavelengths from 2 pi to 10000 * 2 pi."""
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(torch.arange(max_position, dtype=torch.float64), rates)
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


SCHEMES: dict[str, Scheme] = {
    "nope": Scheme("no positional embedding", zero_table, unit_gain),
    "sine": Scheme("fixed sine waves added to scaled token embeddings", sine_table, root_gain),
    "ape": Scheme("a learned vector for each absolute position", zero_table, unit_gain, learned=True),
    "rope": Scheme("queries and keys rotated by their position", None, unit_gain, rotary=True),
    "spe": Scheme("one column holds position / max_position", scalar_table, vacant_last_column),
}


def rotary_angles(max_position: int, d_head: int, base: float = 10000.0) -> Float[Tensor, "max_position d_head"]:
    """The angle by which each column of a head turns at each position; adjacent columns are a pair."""
    rates = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    return torch.outer(torch.arange(max_position, dtype=torch.float64), rates).repeat_interleave(2, dim=1).float()


def rotate(
    x: Float[Tensor, "batch pos head d_head"],
    cos: Float[Tensor, "batch pos 1 d_head"],
    sin: Float[Tensor, "batch pos 1 d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """Each adjacent pair of columns turned: (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin)."""
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * cos + turned * sin
