"""Mamba (S6), a selective state space (paper, appendix A; Gu and Dao, arXiv 2312.00752).

    x, z = in_proj(u)                       x = silu(causal depthwise conv(x))
    dt, B, C = x_proj(x)                    dt = softplus(dt_proj(dt)),  A = -exp(A_log)
    h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t        y_t = out_proj((C_t h_t + D x_t) silu(z_t))

The state h has `d_state` numbers for each of the `d_inner` channels; dt, a step size for each channel, says how much
of it a position forgets and writes. Parameters have the names of transformers' MambaMixer, so weights go both ways.

Hooks have the names and the meaning of TransformerLens' bridge for Mamba, always as [batch, pos, ...], each called
once, in this order; an edit goes into everything that depends on it:

    hook_in_proj    [2 d_inner]             x, then z
    hook_conv       [d_inner]               before its SiLU
    hook_x_proj     [dt_rank + 2 d_state]   dt before dt_proj, then B, then C
    hook_ssm_dt     [d_inner]               before its softplus
    hook_ssm_B, _C  [d_state]
    hook_ssm_write  [d_inner, d_state]      dt_t x_t B_t, what a position adds to the state
    hook_state      [d_inner, d_state]      the bridge's hook_ssm_state, with the axes of the others
    hook_ssm_out    [d_model]               the mixer's output
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import MambaConfig
from models.counter import normal_, uniform_
from models.mamba_scan import selective_scan
from models.recurrent import (
    AnyStream,
    Carry,
    HookedRMSNorm,
    Inputs,
    Memory,
    Mixer,
    Recurrent,
    RecurrentBlock,
    RecurrentEmbed,
    StreamStep,
)
from models.shapes import Stream

Inner = Float[Tensor, "batch pos d_inner"]
Window = Float[Tensor, "batch before d_inner"]  # the earlier inputs that the convolution still needs
State = Float[Tensor, "batch d_inner d_state"]
States = Float[Tensor, "batch pos d_inner d_state"]
Selection = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # x, z, dt, B and C, each [batch, pos, ...]
Hook = Callable[[HookPoint, Tensor], Tensor]  # `_fire`, which calls the hook point, or `_skip`, which does not

NORM_EPS = 1e-5
DT_MIN, DT_MAX = 1e-3, 0.1  # the initial step sizes lie between these


class MambaMixer(Mixer):
    """The selective state space with its convolution and its gate."""

    def __init__(self, cfg: MambaConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.in_proj = nn.Linear(cfg.d_model, 2 * cfg.d_inner, bias=False)
        self.conv1d = nn.Conv1d(cfg.d_inner, cfg.d_inner, cfg.d_conv, groups=cfg.d_inner)
        self.x_proj = nn.Linear(cfg.d_inner, cfg.dt_rank + 2 * cfg.d_state, bias=False)
        self.dt_proj = nn.Linear(cfg.dt_rank, cfg.d_inner)
        self.A_log = nn.Parameter(torch.empty(cfg.d_inner, cfg.d_state))
        self.D = nn.Parameter(torch.empty(cfg.d_inner))
        self.out_proj = nn.Linear(cfg.d_inner, cfg.d_model, bias=False)
        self.hook_in_proj = HookPoint()
        self.hook_conv = HookPoint()
        self.hook_x_proj = HookPoint()
        self.hook_ssm_dt = HookPoint()
        self.hook_ssm_B = HookPoint()
        self.hook_ssm_C = HookPoint()
        self.hook_ssm_write = HookPoint()
        self.hook_ssm_out = HookPoint()

    def init_weights(self, generator: torch.Generator) -> None:
        """As in the authors' code: uniform matrices, A = -1..-d_state, step sizes log-uniform from DT_MIN to DT_MAX."""
        fan_in = {
            self.in_proj: self.cfg.d_model,
            self.conv1d: self.cfg.d_conv,
            self.x_proj: self.cfg.d_inner,
            self.dt_proj: self.cfg.dt_rank,
            self.out_proj: self.cfg.d_inner * self.cfg.n_layers,  # smaller in deep stacks: their sum must not grow
        }
        for module, inputs in fan_in.items():
            assert isinstance(module.weight, nn.Parameter)
            uniform_(module.weight, inputs**-0.5, generator)
        log_dt = torch.rand(self.cfg.d_inner, generator=generator) * math.log(DT_MAX / DT_MIN) + math.log(DT_MIN)
        uniform_(self.conv1d.get_parameter("bias"), self.cfg.d_conv**-0.5, generator)
        with torch.no_grad():
            self.dt_proj.bias.copy_(log_dt.exp().expm1().log())  # softplus turns it into dt
            self.A_log.copy_(torch.arange(1.0, self.cfg.d_state + 1).log().expand_as(self.A_log))
            self.D.fill_(1)

    def run_parallel(self, x: Stream) -> Stream:
        (x, z, dt, B, C), _ = self._select(x, self._empty_window(x), _skip)
        dt_by_pos, x_by_pos, B, C = (rearrange(tensor, "batch pos d -> pos batch d") for tensor in (dt, x, B, C))
        y = selective_scan(dt_by_pos, x_by_pos, self._A(), B, C)
        return self._gate(rearrange(y, "pos batch d_inner -> batch pos d_inner"), x, z)

    def run_with_states(self, x: Stream) -> Stream:
        return self.hook_ssm_out(super().run_with_states(x))

    def inputs(self, x: Stream) -> Inputs:
        selection, _ = self._select(x, self._empty_window(x), _fire)
        return self._discretise(selection, _fire)

    def initial_state(self, x: Stream) -> State:
        return x.new_zeros(len(x), self.cfg.d_inner, self.cfg.d_state)

    def transition(self, state: State, *inputs: Tensor) -> State:
        decay, write, *_ = inputs
        return decay * state + write

    def readout(self, states: States, *inputs: Tensor) -> Stream:
        _, _, C, x, z = inputs
        return self._gate((states * C[:, :, None, :]).sum(-1), x, z)

    def initial_carry(self, x: StreamStep) -> Carry:
        return self.initial_state(x[:, None]), self._empty_window(x[:, None])

    def step(self, x: StreamStep, carry: Carry) -> tuple[StreamStep, Carry]:
        state, window = carry
        selection, window = self._select(x[:, None], window, _skip)
        inputs = self._discretise(selection, _skip)
        state = self.transition(state, *(tensor[:, 0] for tensor in inputs))
        return self.readout(state[:, None], *inputs)[:, 0], (state, window)

    def memory(self, carry: Carry) -> Memory:
        state, window = carry
        return {"state": state, "window": window}

    def with_memory(self, carry: Carry, memory: Memory) -> Carry:
        return memory["state"], memory["window"]

    def _select(self, x: Stream, window: Window, hook: Hook) -> tuple[Selection, Window]:
        """What the recurrence needs at each position, and the convolution's window for the next position."""
        x, z = hook(self.hook_in_proj, self.in_proj(x)).chunk(2, -1)
        extended = torch.cat([window, x], 1)
        x = F.silu(hook(self.hook_conv, self.conv1d(extended.mT).mT))
        projected = hook(self.hook_x_proj, self.x_proj(x))
        low_rank_dt, B, C = projected.split([self.cfg.dt_rank, self.cfg.d_state, self.cfg.d_state], -1)
        dt = hook(self.hook_ssm_dt, self.dt_proj(low_rank_dt))
        B, C = hook(self.hook_ssm_B, B), hook(self.hook_ssm_C, C)
        # Under autocast some of these are in half precision, in which a state would lose count.
        x, dt, B, C = (tensor.to(self.A_log.dtype) for tensor in (x, dt, B, C))
        return (x, z, F.softplus(dt), B, C), extended[:, extended.shape[1] - window.shape[1] :]

    def _empty_window(self, x: Stream) -> Window:
        return x.new_zeros(len(x), self.cfg.d_conv - 1, self.cfg.d_inner)

    def _A(self) -> Float[Tensor, "d_inner d_state"]:
        return -torch.exp(self.A_log)

    def _discretise(self, selection: Selection, hook: Hook) -> Inputs:
        """The inputs of `transition` and `readout`: decay, write, C, x and z. Zero-order hold for A, Euler for B."""
        x, z, dt, B, C = selection
        write = (dt * x)[..., None] * B[:, :, None, :]
        return torch.exp(dt[..., None] * self._A()), hook(self.hook_ssm_write, write), C, x, z

    def _gate(self, y: Inner, x: Inner, z: Inner) -> Stream:
        return self.out_proj((y + self.D * x) * F.silu(z))


def _fire(point: HookPoint, tensor: Tensor) -> Tensor:
    """Passes a tensor through a hook point."""
    return point(tensor)


def _skip(point: HookPoint, tensor: Tensor) -> Tensor:
    """Passes a hook point by, on the fast path and in streams."""
    return tensor


class MambaBlock(RecurrentBlock):
    """A residual block: resid + mixer(norm(resid))."""

    hook_out_is_single_residual_stream = True

    def __init__(self, cfg: MambaConfig) -> None:
        super().__init__(MambaMixer(cfg))
        self.dropout = cfg.dropout
        self.norm = nn.RMSNorm(cfg.d_model, eps=NORM_EPS)

    def run(self, resid: AnyStream, mixer: Callable[[AnyStream], AnyStream]) -> AnyStream:
        return resid + F.dropout(mixer(self.norm(resid)), self.dropout, self.training)

    def init_weights(self, generator: torch.Generator) -> None:
        nn.init.ones_(self.norm.weight)
        super().init_weights(generator)


class TiedUnembed(nn.Module):
    """A head that shares the embedding's weights, so that a checkpoint holds them once."""

    def __init__(self, embed: RecurrentEmbed) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, or torch would list the embedding's weights a second time

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        return self._embed[0].W_E.T

    def forward(self, resid: AnyStream) -> Float[Tensor, "*batch d_vocab"]:
        return F.linear(resid, self._embed[0].W_E)


class Mamba(Recurrent):
    """A stack of Mamba blocks, a norm, and the embedding as the head."""

    cfg: MambaConfig

    def build_block(self, layer: int) -> RecurrentBlock:
        return MambaBlock(self.cfg)

    def build_final_norm(self) -> nn.Module:
        return HookedRMSNorm(self.cfg.d_model, NORM_EPS)

    def build_unembed(self) -> nn.Module:
        return TiedUnembed(self.embed)

    def parameter_groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """Two groups: A_log and D have no weight decay, since 0 is not a neutral value for them; all others do."""
        without_decay = [parameter for name, parameter in self.named_parameters() if name.endswith((".A_log", ".D"))]
        rest = [parameter for name, parameter in self.named_parameters() if not name.endswith((".A_log", ".D"))]
        return [
            {"params": rest, "lr": lr, "weight_decay": weight_decay},
            {"params": without_decay, "lr": lr, "weight_decay": 0.0},
        ]

    def init_weights(self, generator: torch.Generator) -> None:
        """Draws the embedding, which is also the head, from N(0, embed_std), then each mixer's weights; norms are 1."""
        normal_(self.embed.W_E, self.cfg.embed_std, generator)
        assert isinstance(self.ln_final, nn.RMSNorm)
        nn.init.ones_(self.ln_final.weight)
        for block in self.blocks:
            assert isinstance(block, MambaBlock)
            block.init_weights(generator)
