"""The function that docs/extending.md adds to models/position_tables.py."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def alibi_bias(
    query_ids: Int[Tensor, "batch query"], key_ids: Int[Tensor, "batch key"], n_heads: int
) -> Float[Tensor, "batch head query key"]:
    """Minus the distance, times a slope that falls from head to head: 2^(-8 h / n_heads) (Press et al., 2022)."""
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1, device=query_ids.device) / n_heads)
    distances = (query_ids[:, :, None] - key_ids[:, None, :]).abs()
    return -slopes[:, None, None] * distances[:, None]
