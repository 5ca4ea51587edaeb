"""State spaces whose matrix is diagonal plus low rank, one per channel: the algebra of S4 (Gu, Goel and Ré 2022).

    x'(t) = A x(t) + B u(t),   y(t) = C x(t),   A = diag(a) - p p*

The step is absorbed: a, p p* and b here are S4's times dt, so that one unit of time is one position. States come in
conjugate pairs of which one is kept, so a sum over the whole state is twice the real part of the sum over `pair`.
With p p* in place of a free p q*, A is stable whatever p is. Discretised by the bilinear rule,

    Abar = (1 - A/2)^-1 (1 + A/2),   Bbar = (1 - A/2)^-1 B,   x_k = Abar x_{k-1} + Bbar u_k,   y_k = C x_k,

and y is u convolved with the kernel K_k = C Abar^k Bbar. With C~ = C (1 - Abar^L), the *truncated* C, the spectrum of
K_0 .. K_{L-1} at a root of unity w (w^L = 1) is C~ (1 - w Abar)^-1 Bbar: no power of Abar in it. C~ belongs to its L.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange, repeat
from jaxtyping import Complex, Complex128, Float
from torch import Tensor

PairVector = Complex[Tensor, "d_model pair"]
Readout = Complex[Tensor, "d_model pair"]  # a C or a C~
States = Complex[Tensor, "*batch d_model pair"]


@dataclass(frozen=True)
class StateSpace:
    """A and B of every channel, times its step."""

    diagonal: PairVector  # a; real parts are negative
    low_rank: PairVector  # p
    input: PairVector  # b


class Transition(NamedTuple):
    """The discretised Abar and Bbar without a dense matrix: Abar x = decay x - left (right . x)."""

    decay: PairVector
    left: PairVector
    right: PairVector
    input: PairVector


def hippo_legs(
    d_state: int, max_imaginary_b: float = math.inf
) -> tuple[Complex128[np.ndarray, "pair"], Complex128[np.ndarray, "pair"], Complex128[np.ndarray, "pair"]]:
    """HiPPO-LegS as (a, p, b): A_nk = -sqrt((2n+1)(2k+1)) for n > k, -(n+1) for n = k, 0 above; B_n = sqrt(2n+1).

    With P_n = sqrt(n + 1/2), A + P P' is -1/2 plus a skew-symmetric matrix, whose eigenvectors V are unitary. Each is
    turned so that its p = V*P is real and positive: otherwise the phase would depend on LAPACK.

    `max_imaginary_b` clips the imaginary part of b = V*B as S4's code does, in the basis that LAPACK gives it: there
    the first component of each eigenvector is real.
    """
    root = np.sqrt(2 * np.arange(d_state) + 1)
    low_rank = root / math.sqrt(2)
    skew = (np.tril(np.outer(root, root), -1).T - np.tril(np.outer(root, root), -1)) / 2
    frequencies, vectors = np.linalg.eigh(-1j * skew)
    is_positive = frequencies > 0  # one of each conjugate pair
    vectors = vectors[:, is_positive]
    vectors = vectors * np.exp(-1j * np.angle(vectors[0]))
    p, b = vectors.conj().T @ low_rank, vectors.conj().T @ root
    b = b.real + 1j * b.imag.clip(-max_imaginary_b, max_imaginary_b)
    turn = np.exp(-1j * np.angle(p))
    return -0.5 + 1j * frequencies[is_positive], turn * p, turn * b


def discretise(space: StateSpace) -> Transition:
    """The transition by the bilinear rule.

    By Woodbury, (1 - A/2)^-1 = E - E p g p* E with E = 1 / (1 - a/2) and a real number g.
    """
    inverse = 1 / (1 - space.diagonal / 2)
    g = 1 / (2 + _over_pairs(space.low_rank.abs().square() * inverse))
    left, right = inverse * space.low_rank, inverse * space.low_rank.conj()
    return Transition(
        decay=2 * inverse - 1,  # Abar = 2 (1 - A/2)^-1 - 1
        left=2 * g * left,
        right=right,
        input=inverse * space.input - g * left * _over_pairs(right * space.input),
    )


def advance(step: Transition, states: States) -> States:
    """The states after one step without input: Abar x."""
    return step.decay * states - step.left * _over_pairs(step.right * states)


def compute_kernel(space: StateSpace, truncated: Readout, length: int) -> Float[Tensor, "d_model length"]:
    """The first `length` entries of the kernel, from the C~ of this length.

    With R = 1 / ((1 - w) - a s), s = (1 + w) / 2 and k(v) the sum of v R over the state, the spectrum is
    k(C~b) - k(C~p) k(p*b) s / (1 + s k(p*p)); nothing is infinite at w = -1. A frequency f has w = exp(-2i h) with
    h = pi f / length, so 1 - w = 2i sin(h) exp(-ih) and s = cos(h) exp(-ih): the phase is taken out of R, where it
    would drown small decay, and comes back once at the end. What is left of R adds up, over a conjugate pair, to
        v / (2i sin(h) - a cos(h)) + conj(v) / (2i sin(h) - conj(a) cos(h))
            = 2 (2i sin(h) Re v - cos(h) Re(v conj(a))) / (|a|^2 cos(h)^2 - 4i sin(h) cos(h) Re a - 4 sin(h)^2),
    real coefficients times tables above and below, hence matrix products.
    """
    a, p, b = space.diagonal, space.low_rank, space.input
    h = torch.arange(length // 2 + 1, dtype=a.real.dtype, device=a.device) * (math.pi / length)
    cos, i_sin = torch.cos(h), 2j * torch.sin(h)
    below = torch.stack([a.abs().square(), -2 * a.real, torch.ones_like(a.real)], -1)
    tables = _mix(below, torch.stack([cos * cos + 0j, i_sin * cos, i_sin * i_sin])).reciprocal()
    v = torch.stack([truncated * b, truncated * p, p.conj() * b, p.conj() * p], 1)
    with_sin, with_cos = _mix(2 * torch.cat([v.real, (v * a[:, None].conj()).real], 1), tables).chunk(2, 1)
    k_cb, k_cp, k_pb, k_pp = (i_sin * with_sin - cos * with_cos).unbind(1)
    return torch.fft.irfft(torch.exp(1j * h) * (k_cb - k_cp * k_pb * cos / (1 + cos * k_pp)), n=length)


def truncate(step: Transition, readout: Readout, length: int) -> Readout:
    """The truncated readout C~ = C (1 - Abar^length)."""
    row = _as_row(readout)
    return _from_row(row - transition_power(step, length) @ row)


def untruncate(step: Transition, truncated: Readout, length: int) -> Readout:
    """The true readout C from the C~ of this length. A contracts, so 1 - Abar^length is never singular."""
    after = transition_power(step, length)
    return _from_row(torch.linalg.solve(torch.eye(after.shape[-1]).to(after) - after, _as_row(truncated)))


def extend(step: Transition, truncated: Readout, length: int, at_least: int) -> tuple[Readout, int]:
    """A C~ of a length of `at_least`, and that length, found by doubling: C (1 - Abar^2L) = C~ (1 + Abar^L)."""
    if at_least <= length:
        return truncated, length
    row, after = _as_row(truncated), transition_power(step, length)
    while length < at_least:
        row, after, length = row + after @ row, after @ after, 2 * length
    return _from_row(row), length


def transition_power(step: Transition, exponent: int) -> Float[Tensor, "d_model d_state d_state"]:
    """Abar^exponent, transposed, as a matrix on the real and imaginary parts of the kept states."""
    d_model, pairs = step.decay.shape
    eye = torch.eye(2 * pairs, dtype=step.decay.real.dtype, device=step.decay.device)
    basis = repeat(eye, "basis (pair parts) -> basis d_model pair parts", d_model=d_model, parts=2)
    moved = advance(step, torch.view_as_complex(basis.contiguous()))
    rows = rearrange(torch.view_as_real(moved), "basis d_model pair parts -> d_model basis (pair parts)")
    return torch.linalg.matrix_power(rows, exponent)


def _over_pairs(terms: Complex[Tensor, "*batch pair"]) -> Float[Tensor, "*batch 1"]:
    """The sum over the whole state: of `terms`, which are one half of it, and of their conjugates."""
    return 2 * terms.sum(-1, keepdim=True).real


def _mix(
    weights: Float[Tensor, "*batch out inner"], tables: Complex[Tensor, "*tables inner freq"]
) -> Complex[Tensor, "*batch out freq"]:
    """A real matrix times a complex one, as one real product: complex products are several times slower on a CPU."""
    parts = rearrange(torch.view_as_real(tables), "... inner freq parts -> ... inner (freq parts)")
    return torch.view_as_complex(rearrange(weights @ parts, "... (freq parts) -> ... freq parts", parts=2))


def _as_row(readout: Readout) -> Float[Tensor, "d_model d_state 1"]:
    """The readout as a real vector r: C x = r . (Re x_1, Im x_1, Re x_2, ...)."""
    return rearrange(torch.view_as_real(2 * readout.conj_physical()), "d_model pair parts -> d_model (pair parts) 1")


def _from_row(row: Float[Tensor, "d_model d_state 1"]) -> Readout:
    parts = rearrange(row, "d_model (pair parts) 1 -> d_model pair parts", parts=2)
    return torch.view_as_complex(parts.contiguous()).conj_physical() / 2
