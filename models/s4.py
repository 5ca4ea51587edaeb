"""S4-LegS: a state space of its own for every channel, with the full diagonal-plus-low-rank matrix (paper, appendix A).

A block is resid + GLU(W gelu(S4(LN(resid)))). The mixer is S4 with its skip: y = SSM(u) + D u. Without hooks it is
computed as a convolution, whose kernel comes from `models.s4_kernel`; with hooks as the recurrence
x_k = Abar x_{k-1} + Bbar u_k. States are complex; hooks see them as [..., d_model, d_state/2, 2], real and imaginary
parts, one of each conjugate pair.

The stored C is the truncated one, C~ = C (1 - Abar^kernel_length), as S4 trains it: with it a training step needs no
power of Abar. Shorter rows use the beginning of the same kernel; for longer ones C~ is extended by doubling;
the recurrence and streams recover C once per forward pass or stream. All of this is exact, for rows of any length.
Kernel and discretisation are always in float64: it costs little beside the convolution, and float32 overflows
under strong decay.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from models.config import S4Config
from models.counter import normal_, uniform_
from models.recurrent import AnyStream, Inputs, Mixer, Recurrent, RecurrentBlock, RecurrentUnembed
from models.s4_kernel import (
    StateSpace,
    Transition,
    advance,
    compute_kernel,
    discretise,
    extend,
    hippo_legs,
    truncate,
    untruncate,
)
from models.shapes import Stream

State = Float[Tensor, "batch d_model pair 2"]

MAX_SSM_LR = 1e-3
MAX_IMAGINARY_B = 2.0  # at the start; HiPPO's own reaches 41


class S4Mixer(Mixer):
    """One state space per channel. Complex weights are stored as real and imaginary parts."""

    def __init__(self, cfg: S4Config) -> None:
        super().__init__()
        self.cfg = cfg
        pairs = cfg.d_model, cfg.d_state // 2
        self.log_decay = nn.Parameter(torch.empty(pairs))  # log of -Re Lambda, so that Re Lambda stays negative
        self.frequency = nn.Parameter(torch.empty(pairs))  # Im Lambda
        self.P = nn.Parameter(torch.empty(*pairs, 2))
        self.B = nn.Parameter(torch.empty(*pairs, 2))
        self.log_dt = nn.Parameter(torch.empty(cfg.d_model))
        self.C = nn.Parameter(torch.empty(*pairs, 2))  # C~ of cfg.kernel_length
        self.D = nn.Parameter(torch.empty(cfg.d_model))

    def kernel_parameters(self) -> list[nn.Parameter]:
        """The parameters that determine the kernel: those of A, B, C and dt."""
        return [self.log_decay, self.frequency, self.P, self.B, self.C, self.log_dt]

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Every channel starts as HiPPO-LegS with B clipped; dt is log-uniform, C complex N(0, 1) and D N(0, 1)."""
        vectors = hippo_legs(self.cfg.d_state, MAX_IMAGINARY_B)
        diagonal, low_rank, into = (torch.from_numpy(vector) for vector in vectors)
        self.log_decay.copy_(torch.log(-diagonal.real))
        self.frequency.copy_(diagonal.imag)
        self.P.copy_(torch.view_as_real(low_rank))
        self.B.copy_(torch.view_as_real(into))
        low, high = math.log(self.cfg.dt_min), math.log(self.cfg.dt_max)
        uniform_(self.log_dt, (high - low) / 2, generator)
        self.log_dt.add_((low + high) / 2)
        normal_(self.C, math.sqrt(0.5), generator)
        truncated = truncate(discretise(self._build_space()), _complex(self.C), self.cfg.kernel_length)
        self.C.copy_(torch.view_as_real(truncated))
        normal_(self.D, 1.0, generator)

    def _build_space(self) -> StateSpace:
        dt = self.log_dt.double().exp()[:, None]
        eigenvalues = torch.complex(-self.log_decay.double().exp(), self.frequency.double())
        return StateSpace(dt * eigenvalues, dt.sqrt() * _complex(self.P), dt * _complex(self.B))

    def kernel(self, n_pos: int) -> Float[Tensor, "d_model n_pos"]:
        """The convolution kernel: the first `n_pos` outputs for an input of a single 1, without the skip."""
        space, truncated, length = self._build_space(), _complex(self.C), self.cfg.kernel_length
        if n_pos > length:
            truncated, length = extend(discretise(space), truncated, length, n_pos)
        return compute_kernel(space, truncated, length)[:, :n_pos].to(self.D.dtype)

    def run_parallel(self, x: Stream) -> Stream:
        n_pos = x.shape[1]
        n = -(-2 * n_pos // 16) * 16  # long enough not to wrap round, and of a length that is quick to transform
        spectrum = torch.fft.rfft(x.mT, n=n) * torch.fft.rfft(self.kernel(n_pos), n=n)
        return self.D * x + torch.fft.irfft(spectrum, n=n)[..., :n_pos].mT  # summed in this order, it keeps x's layout

    def inputs(self, x: Stream) -> Inputs:
        return (x,)

    def constants(self) -> Inputs:
        """The parts of the discretised transition, and the true C."""
        step = discretise(self._build_space())
        readout = untruncate(step, _complex(self.C), self.cfg.kernel_length)
        return tuple(tensor.to(self.D.dtype.to_complex()) for tensor in (*step, readout))

    def initial_state(self, x: Stream) -> State:
        return x.new_zeros(len(x), self.cfg.d_model, self.cfg.d_state // 2, 2)

    def transition(self, state: State, *inputs: Tensor) -> State:
        x, decay, left, right, into, _ = inputs
        moved = advance(Transition(decay, left, right, into), torch.complex(*state.unbind(-1)))
        return torch.view_as_real(moved + into * x[..., None])

    def transition_matrices(self) -> Float[Tensor, "d_model d_state d_state"]:
        """Abar of every channel, for real and imaginary parts, in float64."""
        n_pairs = self.cfg.d_state // 2
        parts = torch.eye(self.cfg.d_state, dtype=torch.float64, device=self.D.device).view(-1, 1, n_pairs, 2)
        states = torch.view_as_complex(parts.expand(-1, self.cfg.d_model, -1, -1).contiguous())
        moved = torch.view_as_real(advance(discretise(self._build_space()), states))
        return moved.permute(1, 2, 3, 0).flatten(1, 2)

    def readout(self, states: Float[Tensor, "batch pos d_model pair 2"], *inputs: Tensor) -> Stream:
        x, readout = inputs[0], inputs[-1]
        real_row = 2 * torch.view_as_real(readout.conj_physical())
        return (states * real_row).sum((-2, -1)) + self.D * x


def _complex(parts: Float[Tensor, "d_model pair 2"]) -> Tensor:
    return torch.view_as_complex(parts.double())


class S4Block(RecurrentBlock):
    """Pre-LN, the mixer, GELU, a linear layer with GLU, residual.

    There is dropout before and after the GELU, and on the block's output; the last drops a channel at all positions of
    a row or at none.
    """

    hook_out_is_single_residual_stream = True

    def __init__(self, cfg: S4Config) -> None:
        super().__init__(S4Mixer(cfg))
        self.dropout = cfg.dropout
        self.ln = nn.LayerNorm(cfg.d_model)
        self.output = nn.Linear(cfg.d_model, 2 * cfg.d_model)

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets the norm to the identity and draws the linear layer uniformly from +-1/sqrt(d_model), as torch does."""
        super().init_weights(generator)
        self.ln.reset_parameters()
        for parameter in self.output.parameters():
            uniform_(parameter, self.output.in_features**-0.5, generator)

    def run(self, resid: AnyStream, mixer: Callable[[AnyStream], AnyStream]) -> AnyStream:
        y = self._drop(F.gelu(self._drop(mixer(self.ln(resid)))))
        added = F.glu(self.output(y), dim=-1)
        return resid + F.dropout1d(added.mT, self.dropout, self.training).mT

    def _drop(self, x: AnyStream) -> AnyStream:
        return F.dropout(x, self.dropout, self.training)


class S4(Recurrent):
    """A stack of S4 blocks, without a final norm."""

    cfg: S4Config
    unembed: RecurrentUnembed

    def build_block(self, layer: int) -> RecurrentBlock:
        return S4Block(self.cfg)

    def init_unembed(self, generator: torch.Generator) -> None:
        """Draws the head uniformly from +-1/sqrt(d_model), torch's default for a linear layer."""
        uniform_(self.unembed.W_U, self.cfg.d_model**-0.5, generator)

    def parameter_groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """Two groups: the parameters of the kernels (A, B, C and dt), and all others.

        S4's authors give the kernels a learning rate of at most 1e-3 and no weight decay, since decay pulls dt to 1 and
        frequencies to 0, and a large step in them changes a kernel completely. `cfg.state_lr` and `cfg.state_decay`
        allow more.
        """
        mixers = [module for module in self.modules() if isinstance(module, S4Mixer)]
        kernels = [parameter for mixer in mixers for parameter in mixer.kernel_parameters()]
        kernel_ids = {id(parameter) for parameter in kernels}
        rest = [parameter for parameter in self.parameters() if id(parameter) not in kernel_ids]
        largest = MAX_SSM_LR if self.cfg.state_lr is None else self.cfg.state_lr
        return [
            {"params": rest, "lr": lr, "weight_decay": weight_decay},
            {"params": kernels, "lr": min(lr, largest), "weight_decay": self.cfg.state_decay or 0.0},
        ]
