"""Linear recurrences with elementwise decay, position by position: h_t = decay_t * h_{t-1} + write_t.

Time is the first axis, so that a step is one fused multiply-add on contiguous memory. On a CPU this beats parallel
scans, which do more work and move more memory: moving memory is the main cost here. For the same reason
`selective_scan` handles a few positions at a time, so that its tensors stay in the cache; without gradients they are
dropped afterwards.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.config import MambaConfig

States = Float[Tensor, "pos *state"]
State = Float[Tensor, "*state"]


def linear_scan(decay: States, writes: States, initial: State) -> tuple[States, State]:
    """The state after each position, and a copy of the last one from which a next chunk can go on."""
    return _LinearScan.apply(decay, writes, initial, False)


def selective_scan(
    dt: Float[Tensor, "pos batch d_inner"],
    x: Float[Tensor, "pos batch d_inner"],
    A: Float[Tensor, "d_inner d_state"],
    B: Float[Tensor, "pos batch d_state"],
    C: Float[Tensor, "pos batch d_state"],
) -> Float[Tensor, "pos batch d_inner"]:
    """The outputs C_t h_t of the recurrence h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t, which starts from h = 0."""
    A = A.T.contiguous()  # d_inner innermost: long rows for the vector unit
    state = dt.new_zeros(dt.shape[1], *A.shape)
    step = max(1, MambaConfig.scan_elements // state.numel())
    outputs = []
    chunks = (tensor.contiguous().split(step) for tensor in (dt, dt * x, B, C))
    with torch.autocast(dt.device.type, enabled=False):  # it would halve the matmuls' precision, and so the state's
        for dt_chunk, dt_x, B_chunk, C_chunk in zip(*chunks, strict=True):
            decay = (dt_chunk[:, :, None] * A).exp_()
            # Products with B and C as matmuls: so are their gradients, which then need no big temporary tensors.
            writes = B_chunk[..., None] @ dt_x[:, :, None]
            states, state = linear_scan(decay, writes, state)
            outputs.append((C_chunk[:, :, None] @ states)[:, :, 0])
    return torch.cat(outputs)


class _LinearScan(torch.autograd.Function):
    """The recurrence and, with `reverse`, its adjoint; each is the other's derivative, to any order.

    forwards:  out_t = terms_t + decay_t * out_{t-1},  starts from carry = out_{-1},  ends with out_{last}
    reverse:   out_t = terms_t + decay_{t+1} * out_{t+1},  starts from carry = that product for the last position,
               ends with decay_0 * out_0
    """

    @staticmethod
    def forward(decay: Tensor, terms: Tensor, carry: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(terms, memory_format=torch.contiguous_format)
        steps = list(zip(decay.unbind(), terms.unbind(), out.unbind(), strict=True))
        if not reverse:
            for decay_t, term, out_t in steps:
                carry = torch.addcmul(term, decay_t, carry, out=out_t)
            return out, carry.clone()
        decay_next: Tensor | None = None
        for decay_t, term, out_t in reversed(steps):
            if decay_next is None:
                torch.add(term, carry, out=out_t)
            else:
                torch.addcmul(term, decay_next, carry, out=out_t)
            decay_next, carry = decay_t, out_t
        return out, steps[0][0] * carry

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        decay, _, carry, ctx.reverse = inputs
        ctx.save_for_backward(decay, carry, output[0])

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        decay, carry, out = ctx.saved_tensors
        grad_terms, grad_carry = _LinearScan.apply(decay, grad_out, grad_last, not ctx.reverse)
        if ctx.reverse:
            states, initial, adjoint = grad_terms, grad_last, out
        else:
            states, initial, adjoint = out, carry, grad_terms
        grad_decay = torch.cat([(adjoint[0] * initial)[None], adjoint[1:] * states[:-1]])
        return grad_decay, grad_terms, grad_carry, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], decay: Tensor, terms: Tensor, carry: Tensor, reverse: bool
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """The mapped axis is one more axis of the state."""
        tensors = []
        for tensor, dim, to in zip((decay, terms, carry), in_dims, (1, 1, 0), strict=False):
            if dim is None:
                tensors.append(tensor.unsqueeze(to).expand(*tensor.shape[:to], info.batch_size, *tensor.shape[to:]))
            else:
                tensors.append(tensor.movedim(dim, to))
        return _LinearScan.apply(*tensors, reverse), (1, 0)
