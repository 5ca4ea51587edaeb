"""RWKV-6 "Finch" (Peng et al. 2024): a matrix-valued state with a decay that depends on the input.

    r, k, v, g, w at t    from x_t and x_{t-1}, mixed by a low-rank function of the two (the token shift)
    y_t = r_t (S_{t-1} + diag(u) k_t v_t^T),    S_t = diag(w_t) S_{t-1} + k_t v_t^T      (in each head)
    out = W_o (GroupNorm(y) * silu(g))

A block adds this time mix, then a channel mix: a squared-ReLU MLP behind a token shift, gated by a sigmoid.

The output at t reads the state *before* t plus a bonus u for the token itself, so the state after t is first read at
t+1. The hooked state at t is therefore two matrices per head, [batch, pos, 2, head, d_key, d_value], as an LSTM's is
two vectors:

    [:, :, 0]  what is read at t:   S_{t-1} + diag(u) k_t v_t^T
    [:, :, 1]  the state after t:   S_t, on which everything later depends

A step edit of both at t changes the output at t and all later ones; of [0] alone, only the output at t; of [1] alone,
the outputs from t+1 on. An edit of the trajectory changes what is read at its own position, so there only [0] matters.
Adding the same number to all d_value columns changes nothing: GroupNorm subtracts a head's mean. Later tokens know of
earlier ones through [1] and through the token shifts, which reach one position back into the block's residual stream:
a stream carries all three.

`hook_r`, `hook_k`, `hook_v`, `hook_g` and `hook_decay` (w, in 0..1) come before the recurrence, so an edit of them has
an effect on later states too. Parameters have the names of the reference implementation where it has them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import RWKV6Config
from models.counter import uniform_
from models.recurrent import (
    AnyStream,
    Carry,
    HookedLayerNorm,
    Inputs,
    Memory,
    Mixer,
    Recurrent,
    RecurrentBlock,
    RecurrentUnembed,
    StreamStep,
)
from models.rwkv6_recurrence import recurrence
from models.shapes import HeadVectors, Logits, Stream

State = Float[Tensor, "batch 2 head d_head d_head"]
States = Float[Tensor, "batch pos 2 head d_head d_head"]

MAX_LOGIT_PENALTY = 1e-4  # the penalty's gradient at each largest logit, divided by that logit

# exp(-exp(8)) is 0 in float64 too, with its gradient: larger logs change nothing, but their exp may become infinite.
MAX_LOG_LOG_DECAY = 8.0


def shift_by_one(x: Stream) -> Stream:
    """At each position the input of the position before it; zeros at the first."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1]


class TimeMix(Mixer):
    """The recurrence, with the projections into and out of it."""

    def __init__(self, cfg: RWKV6Config, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer = cfg, layer
        d_model = cfg.d_model
        self.time_maa_x = nn.Parameter(torch.empty(d_model))
        self.time_maa = nn.Parameter(torch.empty(5, d_model))  # of w, k, v, r, g
        self.time_maa_w1 = nn.Parameter(torch.empty(d_model, 5 * cfg.shift_rank))
        self.time_maa_w2 = nn.Parameter(torch.empty(5, cfg.shift_rank, d_model))
        self.time_decay = nn.Parameter(torch.empty(d_model))
        self.time_decay_w1 = nn.Parameter(torch.empty(d_model, cfg.decay_rank))
        self.time_decay_w2 = nn.Parameter(torch.empty(cfg.decay_rank, d_model))
        self.time_faaaa = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head))  # the bonus u
        self.receptance, self.key, self.value, self.gate, self.output = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(5)
        )
        self.ln_x = nn.GroupNorm(cfg.n_heads, d_model, eps=64e-5)  # the reference's, for heads of any width
        self.hook_r = HookPoint()
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        self.hook_g = HookPoint()
        self.hook_decay = HookPoint()

    def run_parallel(self, x: Stream) -> Stream:
        r, k, v, log_decay, g = self._project(x, shift_by_one(x))
        with torch.autocast(x.device.type, enabled=False):
            y = recurrence(r, k, v, log_decay, self.time_faaaa)
        return self._write(y, g)

    def _project(
        self, x: Stream, previous: Stream
    ) -> tuple[HeadVectors, HeadVectors, HeadVectors, HeadVectors, Stream]:
        """r, k, v and the logarithm of the decay, split into heads; and the gate."""
        delta = previous - x
        low_rank = torch.tanh((x + delta * self.time_maa_x) @ self.time_maa_w1)
        low_rank = rearrange(low_rank, "batch pos (five rank) -> five (batch pos) rank", five=5)
        amount = torch.baddbmm(self.time_maa[:, None], low_rank, self.time_maa_w2)
        xw, xk, xv, xr, xg = (x + delta * mix.view_as(x) for mix in amount.unbind(0))
        log_log_decay = self.time_decay + torch.tanh(xw @ self.time_decay_w1) @ self.time_decay_w2
        log_decay = -torch.exp(log_log_decay.clamp(max=MAX_LOG_LOG_DECAY))
        r, k, v, log_decay = (
            rearrange(part, "batch pos (head d_head) -> batch pos head d_head", d_head=self.cfg.d_head)
            for part in (self.receptance(xr), self.key(xk), self.value(xv), log_decay)
        )
        # Under autocast r, k and v are in half precision, in which a count would soon stop growing.
        dtype = log_decay.dtype
        return r.to(dtype), k.to(dtype), v.to(dtype), log_decay, F.silu(self.gate(xg))

    def _write(self, y: HeadVectors, g: Stream) -> Stream:
        normed = self.ln_x(rearrange(y, "batch pos head d_head -> (batch pos) (head d_head)"))
        return self.output(normed.view_as(g) * g)

    def inputs(self, x: Stream) -> Inputs:
        r, k, v, log_decay, g = self._project(x, shift_by_one(x))
        return self.hook_r(r), self.hook_k(k), self.hook_v(v), self.hook_decay(log_decay.exp()), self.hook_g(g)

    def initial_state(self, x: Stream) -> State:
        d_head = self.cfg.d_head
        return self.time_faaaa.new_zeros(len(x), 2, self.cfg.n_heads, d_head, d_head)

    def transition(self, state: State, *inputs: Tensor) -> State:
        _, k, v, decay, _ = inputs
        before, new = state[:, 1], k[..., None] * v[..., None, :]
        return torch.stack([before + self.time_faaaa[..., None] * new, decay[..., None] * before + new], 1)

    def readout(self, states: States, *inputs: Tensor) -> Stream:
        r, *_, g = inputs
        with torch.autocast(r.device.type, enabled=False):
            y = einsum(r, states[:, :, 0], "batch pos head k, batch pos head k v -> batch pos head v")
        return self._write(y, g)

    def initial_carry(self, x: StreamStep) -> Carry:
        return self.initial_state(x[:, None]), torch.zeros_like(x)

    def step(self, x: StreamStep, carry: Carry) -> tuple[StreamStep, Carry]:
        before, previous = carry
        r, k, v, log_decay, g = self._project(x[:, None], previous[:, None])
        inputs = r, k, v, log_decay.exp(), g
        state = self.transition(before, *(tensor[:, 0] for tensor in inputs))
        return self.readout(state[:, None], *inputs)[:, 0], (state, x)

    def memory(self, carry: Carry) -> Memory:
        state, previous = carry
        return {"state": state[:, 1], "time_shift": previous}  # what was read at this position is not needed again

    def with_memory(self, carry: Carry, memory: Memory) -> Carry:
        return torch.stack([memory["state"], memory["state"]], 1), memory["time_shift"]

    def init_weights(self, generator: torch.Generator) -> None:
        depth, height = _depth(self.cfg, self.layer)
        channel = torch.arange(self.cfg.d_model) / max(1, self.cfg.d_model - 1)
        shift = _initial_shift(self.cfg, height)
        gentle = _initial_shift(self.cfg, 0.5 * height)
        zigzag = 0.1 * ((torch.arange(self.cfg.d_model) + 1) % 3 - 1)
        with torch.no_grad():
            self.time_maa_x.copy_(shift)
            self.time_maa.copy_(torch.stack([shift, shift, shift - 0.3 * depth, gentle, gentle]))
            self.time_decay.copy_(-6 + 5 * channel ** (0.7 + 1.3 * depth))
            self.time_faaaa.copy_((depth * (1 - channel) + zigzag).view_as(self.time_faaaa))
            self.ln_x.weight.fill_(((1 + self.layer) / self.cfg.n_layers) ** 0.7)
            for zero in (self.time_maa_w1, self.time_decay_w1, self.ln_x.bias, self.output.weight):
                zero.zero_()
        uniform_(self.time_maa_w2, 0.01, generator)
        uniform_(self.time_decay_w2, 0.01, generator)
        for linear, gain in ((self.receptance, 1.0), (self.key, 0.1), (self.value, 1.0), (self.gate, 0.1)):
            orthogonal_(linear.weight, gain, generator)


class ChannelMix(nn.Module):
    """sigmoid(W_r x_r) * W_v relu(W_k x_k)^2, where x_r and x_k are mixtures of the input and the one before it."""

    def __init__(self, cfg: RWKV6Config, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer = cfg, layer
        self.time_maa_k = nn.Parameter(torch.empty(cfg.d_model))
        self.time_maa_r = nn.Parameter(torch.empty(cfg.d_model))
        self.key = nn.Linear(cfg.d_model, cfg.d_ffn, bias=False)
        self.receptance = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.value = nn.Linear(cfg.d_ffn, cfg.d_model, bias=False)
        self.hook_post = HookPoint()

    def forward(self, x: AnyStream, previous: AnyStream) -> AnyStream:
        delta = previous - x
        post = self.hook_post(F.relu(self.key(x + delta * self.time_maa_k)).square())
        return torch.sigmoid(self.receptance(x + delta * self.time_maa_r)) * self.value(post)

    def init_weights(self, generator: torch.Generator) -> None:
        shift = _initial_shift(self.cfg, _depth(self.cfg, self.layer)[1])
        with torch.no_grad():
            self.time_maa_k.copy_(shift)
            self.time_maa_r.copy_(shift)
            self.receptance.weight.zero_()
            self.value.weight.zero_()
        orthogonal_(self.key.weight, 1.0, generator)


def _depth(cfg: RWKV6Config, layer: int) -> tuple[float, float]:
    """A layer's depth, from 0 (first) to 1 (last), and its height, from 1 (first) down to nearly 0."""
    return layer / max(1, cfg.n_layers - 1), 1 - layer / cfg.n_layers


def _initial_shift(cfg: RWKV6Config, power: float) -> Float[Tensor, "d_model"]:
    """The share of each column that comes from the position before: 1 for the first column, nearly 0 for the last."""
    return 1 - (torch.arange(cfg.d_model) / cfg.d_model) ** power


def orthogonal_(parameter: Tensor, gain: float, generator: torch.Generator) -> None:
    """Fills a parameter with a random (semi-)orthogonal matrix times the gain, drawn on the CPU."""
    with torch.no_grad():
        parameter.copy_(nn.init.orthogonal_(torch.empty(parameter.shape), gain, generator=generator))


class RWKV6Block(RecurrentBlock):
    """Time mix and channel mix, each behind a LayerNorm and added to the residual stream.

    Dropout acts on the whole residual stream after each addition, not only on what was added.
    """

    mixer: TimeMix
    hook_out_is_single_residual_stream = True

    def __init__(self, cfg: RWKV6Config, layer: int) -> None:
        super().__init__(TimeMix(cfg, layer))
        self.dropout = cfg.dropout
        self.ln1 = nn.LayerNorm(cfg.d_model)
        self.ln2 = nn.LayerNorm(cfg.d_model)
        self.mlp = ChannelMix(cfg, layer)
        self.hook_mixer_out = HookPoint()
        self.hook_resid_mid = HookPoint()
        self.hook_mlp_out = HookPoint()

    def forward(self, resid: Stream) -> Stream:
        resid = self.hook_resid_pre(resid)
        resid = self.hook_resid_mid(self._drop(resid + self.hook_mixer_out(self.mixer(self.ln1(resid)))))
        x = self.ln2(resid)
        return self.hook_resid_post(self._drop(resid + self.hook_mlp_out(self.mlp(x, shift_by_one(x)))))

    def _drop(self, x: AnyStream) -> AnyStream:
        return F.dropout(x, self.dropout, self.training)

    def initial_carry(self, resid: StreamStep) -> Carry:
        return *self.mixer.initial_carry(resid), torch.zeros_like(resid)

    def step(self, resid: StreamStep, carry: Carry) -> tuple[StreamStep, Carry]:
        y, mixer_carry = self.mixer.step(self.ln1(resid), carry[:-1])
        resid = self._drop(resid + y)
        x = self.ln2(resid)
        return self._drop(resid + self.mlp(x, carry[-1])), (*mixer_carry, x)

    def memory(self, carry: Carry) -> Memory:
        return self.mixer.memory(carry[:-1]) | {"channel_shift": carry[-1]}

    def with_memory(self, carry: Carry, memory: Memory) -> Carry:
        return *self.mixer.with_memory(carry[:-1], memory), memory["channel_shift"]

    def init_weights(self, generator: torch.Generator) -> None:
        super().init_weights(generator)
        self.mlp.init_weights(generator)
        self.ln1.reset_parameters()
        self.ln2.reset_parameters()


class EmbeddingNorm(nn.LayerNorm):
    """The LayerNorm after the embedding, with dropout before it."""

    def __init__(self, cfg: RWKV6Config) -> None:
        super().__init__(cfg.d_model)
        self.dropout = cfg.dropout

    def forward(self, x: AnyStream) -> AnyStream:
        return super().forward(F.dropout(x, self.dropout, self.training))


class RWKV6(Recurrent):
    """A stack of RWKV-6 blocks between two LayerNorms."""

    cfg: RWKV6Config
    unembed: RecurrentUnembed

    def build_block(self, layer: int) -> RecurrentBlock:
        return RWKV6Block(self.cfg, layer)

    def build_embedding_norm(self) -> nn.Module:
        return EmbeddingNorm(self.cfg)

    def build_final_norm(self) -> nn.Module:
        return HookedLayerNorm(self.cfg.d_model)

    def init_weights(self, generator: torch.Generator) -> None:
        """As the reference does: blocks add nothing at first, and the embedding is uniform and tiny.

        The norm after the embedding does not undo its smallness, since 1e-4 is far below the root of the norm's
        epsilon: the input of the first block has a std of 0.018. So `embed_std` scales the bound of the embedding,
        which is 1e-4 at the default of 0.02; with 1 the input's std is 0.67.
        """
        uniform_(self.embed.W_E, 1e-4 * self.cfg.embed_std / 0.02, generator)
        orthogonal_(self.unembed.W_U, 0.5 * max(1.0, self.cfg.d_vocab / self.cfg.d_model) ** 0.5, generator)
        for norm in (self.ln_embed, self.ln_final):
            assert isinstance(norm, nn.LayerNorm)
            norm.reset_parameters()
        for block in self.blocks:
            assert isinstance(block, RWKV6Block)
            block.init_weights(generator)

    def penalty(self, logits: Logits, weights: Float[Tensor, "batch pos"]) -> Float[Tensor, ""]:
        """A term that pulls the largest logit of every position towards 0: the reference's L2Wrap."""
        largest = logits.float().max(-1).values
        return MAX_LOGIT_PENALTY / 2 * (largest.square() * weights).sum() / weights.sum()

    def parameter_groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """Three groups: large matrices, with weight decay; `time_decay`, with twice the learning rate; and the rest."""
        matrices: list[Tensor] = [self.embed.W_E, self.unembed.W_U]
        matrices += [module.weight for module in self.modules() if isinstance(module, nn.Linear)]
        by_name = dict(self.named_parameters())
        fast = [parameter for name, parameter in by_name.items() if name.endswith(".time_decay")]
        grouped = {id(parameter) for parameter in (*matrices, *fast)}
        rest = [parameter for parameter in by_name.values() if id(parameter) not in grouped]
        return [
            {"params": matrices, "lr": lr, "weight_decay": weight_decay},
            {"params": rest, "lr": lr, "weight_decay": 0.0},
            {"params": fast, "lr": 2 * lr, "weight_decay": 0.0},
        ]
