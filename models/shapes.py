"""Shapes of tensors that several modules use, in the one vocabulary of axes."""

from jaxtyping import Float, Int
from torch import Tensor

TokenIds = Int[Tensor, "batch pos"]
PositionIds = Int[Tensor, "batch pos"]
Lengths = Int[Tensor, "batch"]  # tokens of each row
Logits = Float[Tensor, "batch pos d_vocab"]
Stream = Float[Tensor, "batch pos d_model"]  # the residual stream
HeadVectors = Float[Tensor, "batch pos head d_head"]
