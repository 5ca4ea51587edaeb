"""RWKV-6's recurrence over whole rows, in chunks of sixteen positions and almost only by matrix products.

    y_t = r_t (S_{t-1} + diag(u) k_t v_t^T),    S_t = diag(w_t) S_{t-1} + k_t v_t^T

With S the state at the start of a chunk and W[i..j] the product of the decays w_i .. w_j, inside the chunk this is

    y_t = (r_t W[0..t-1]) S  +  sum_{s<t} (r_t W[s+1..t-1] . k_s) v_s  +  (r_t u . k_t) v_t

For matrix products, W[s+1..t-1] has to be a factor of t times a factor of s. As a quotient of running products,
W[0..t-1] / W[0..s], it overflows where decay is strong, and loses the weak decays behind a strong one. So the chunk is
cut in halves, these again, and so on. An earlier s and a later t are in different halves of exactly one such pair, and
there W[s+1..t-1] = W[s+1..end of the first half] W[start of the second half..t-1]: no factor is above 1, and each is
the exponential of a sum over just its own positions. No decay is too strong for that, and nothing has to be clipped.
"""

from functools import cache

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from models.config import RWKV6Config
from models.shapes import HeadVectors

CHUNK = RWKV6Config.chunk
HALVES = [2**power for power in range(1, CHUNK.bit_length() - 1)]  # positions; halves of one need no factors

Chunks = Float[Tensor, "chunk batch head step d_head"]
ChunkStates = Float[Tensor, "chunk batch head d_head d_head"]


def recurrence(
    r: HeadVectors, k: HeadVectors, v: HeadVectors, log_decay: HeadVectors, bonus: Float[Tensor, "head d_head"]
) -> HeadVectors:
    """The outputs y at all positions, starting from a state of zeros. `log_decay` must be finite and at most 0."""
    n_pos = r.shape[1]
    r, k, v, log_decay = (_chunks(tensor) for tensor in (r, k, v, log_decay))
    summed, pairs = _constants(r.dtype, r.device)
    from_start, to_end, *in_half = (summed @ log_decay).exp().unflatten(-2, (-1, CHUNK)).unbind(-3)
    states = _states_at_starts(log_decay.sum(-2).exp()[..., None], (k * to_end).mT @ v)
    weights = torch.diag_embed((r * bonus[:, None] * k).sum(-1)) + (r @ k.mT) * pairs[0]
    for factor, pairs_of_halves in zip(in_half, pairs[1:], strict=True):
        weights = weights + (r * factor) @ (k * factor).mT * pairs_of_halves
    y = (r * from_start) @ states + weights @ v
    return rearrange(y, "chunk batch head step d_head -> batch (chunk step) head d_head")[:, :n_pos]


def _chunks(tensor: HeadVectors) -> Chunks:
    """The tensor cut into chunks. The last is padded with zeros, which change no output that is read."""
    padded = F.pad(tensor, (0, 0, 0, 0, 0, -tensor.shape[1] % CHUNK))
    return rearrange(padded, "batch (chunk step) ... d_head -> chunk batch ... step d_head", step=CHUNK).contiguous()


def _states_at_starts(decay: Float[Tensor, "chunk batch head d_head 1"], added: ChunkStates) -> ChunkStates:
    """The state at the start of each chunk, from the decay over each chunk and what it adds to the state."""
    state, states = torch.zeros_like(added[0]), []
    for chunk_decay, chunk_added in zip(decay.unbind(0), added.unbind(0), strict=True):
        states.append(state)
        state = torch.addcmul(chunk_added, chunk_decay, state)
    return torch.stack(states)


@cache
@torch.inference_mode(False)  # a tensor made in inference mode could not be used with gradients later
def _constants(
    dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "factor_step step"], Float[Tensor, "level step earlier_step"]]:
    """Two masks of zeros and ones: which steps' decays go into each factor, and which pairs of steps each level covers.

    The factors are those from the chunk's start, to its end, and within halves of each size, one row per step. A level
    is a size of halves.
    """
    step, other = torch.arange(CHUNK, device=device)[:, None], torch.arange(CHUNK, device=device)
    summed = [other < step, other > step]
    for half in HALVES:
        start = step - step % half
        to_end, from_start = (other > step) & (other < start + half), (other >= start) & (other < step)
        summed.append(torch.where(step // half % 2 == 0, to_end, from_start))
    pairs = [(step // half % 2 == 1) & (step // half == other // half + 1) for half in (1, *HALVES)]
    return torch.cat(summed).to(dtype), torch.stack(pairs).to(dtype)
