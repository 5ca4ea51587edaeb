"""What several variables add to activations or memories, each when the others are held: one fit to all of them."""

from collections.abc import Mapping

import torch
from torch import Tensor

RIDGE = 1e-6


def additive_fit(designs: Mapping[str, Tensor], values: Tensor) -> dict[str, Tensor]:
    """The coefficients of each design matrix, [sample, column] each, when all are fitted to the values together."""
    design = torch.cat(list(designs.values()), 1)
    gram = design.T @ design + RIDGE * torch.eye(design.shape[1]).to(design)
    widths = [columns.shape[1] for columns in designs.values()]
    return dict(zip(designs, torch.linalg.solve(gram, design.T @ values).split(widths), strict=True))
