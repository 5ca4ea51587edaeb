"""Transformer counters: HookedTransformer's parameter and hook names, five positional schemes, one class.

Structure (paper, section 3.2): pre-LN GPT-2 blocks, ReLU, final LN, untied unembedding without bias; the
attention scores of layer l are divided by sqrt(d_head) and by l + 1. Whoever listens at the scores or the
pattern gets explicit attention; with nobody there it is fused. The numbers are the same.
"""

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import TransformerConfig
from models.counter import Counter, Logits, PositionIds, State, TokenIds, listening, normal_
from models.schemes import SCHEMES, rotary_angles, rotate

Stream = Float[Tensor, "batch pos d_model"]
SplitStream = Float[Tensor, "batch pos head d_model"]
Heads = Float[Tensor, "batch pos head d_head"]
Mask = Bool[Tensor, "#batch 1 #query key"]  # True where a query may look


# Hook points that fire only while a switch of the config is on.
OPTIONAL_HOOKS = {
    ".hook_result": "use_attn_result",
    ".hook_q_input": "use_split_qkv_input",
    ".hook_k_input": "use_split_qkv_input",
    ".hook_v_input": "use_split_qkv_input",
    ".hook_attn_in": "use_attn_in",
    ".hook_mlp_in": "use_hook_mlp_in",
}


class Embed(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))
        self.gain: Tensor
        self.register_buffer("gain", SCHEMES[cfg.position].gain(cfg.d_model), persistent=False)

    def forward(self, token_ids: TokenIds) -> Stream:
        return F.embedding(token_ids, self.W_E * self.gain)


class PosEmbed(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        scheme = SCHEMES[cfg.position]
        assert scheme.table is not None
        table = scheme.table(cfg.max_position, cfg.d_model)
        self.W_pos: Tensor
        if scheme.learned:
            self.W_pos = nn.Parameter(table)
        else:
            self.register_buffer("W_pos", table, persistent=False)

    def forward(self, position_ids: PositionIds) -> Stream:
        return F.embedding(position_ids, self.W_pos)


class LayerNorm(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.eps = cfg.eps
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if not listening(self.hook_scale, self.hook_normalized):
            return F.layer_norm(x, self.w.shape, self.w, self.b, self.eps)
        centred = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(centred / scale) * self.w + self.b


class Attention(nn.Module):
    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.score_scale = 1 / (math.sqrt(cfg.d_head) * (layer + 1))
        into, bias = (cfg.n_heads, cfg.d_model, cfg.d_head), (cfg.n_heads, cfg.d_head)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(into)) for _ in range(3))
        self.W_O = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head, cfg.d_model))
        self.b_Q, self.b_K, self.b_V = (nn.Parameter(torch.zeros(bias)) for _ in range(3))
        self.b_O = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_k = HookPoint()
        self.hook_q = HookPoint()
        self.hook_v = HookPoint()
        self.hook_z = HookPoint()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()
        self.hook_result = HookPoint()
        if SCHEMES[cfg.position].rotary:
            self.hook_rot_k = HookPoint()
            self.hook_rot_q = HookPoint()

    def forward(
        self,
        inputs: tuple[Stream] | tuple[SplitStream, SplitStream, SplitStream],
        rotation: tuple[Tensor, Tensor] | None,
        mask: Mask | None,
    ) -> Stream:
        query, key, value = self._project(inputs)
        q, k, v = self.hook_q(query), self.hook_k(key), self.hook_v(value)
        if rotation is not None:
            q, k = self.hook_rot_q(rotate(q, *rotation)), self.hook_rot_k(rotate(k, *rotation))
        z = self.hook_z(self._attend(q, k, v, mask))
        if self.cfg.use_attn_result:
            result = einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos head d_model")
            return self.hook_result(result).sum(-2) + self.b_O
        return F.linear(z.flatten(-2), self.W_O.flatten(0, 1).T, self.b_O)

    def _project(
        self, inputs: tuple[Stream] | tuple[SplitStream, SplitStream, SplitStream]
    ) -> tuple[Heads, Heads, Heads]:
        weights, biases = (self.W_Q, self.W_K, self.W_V), (self.b_Q, self.b_K, self.b_V)
        if len(inputs) == 3:
            query, key, value = (
                einsum(x, weight, "batch pos head d_model, head d_model d_head -> batch pos head d_head") + bias
                for x, weight, bias in zip(inputs, weights, biases, strict=True)
            )
            return query, key, value
        # One matrix product for all three: the copy of the weights is far cheaper than two more calls.
        weight = rearrange(torch.cat(weights), "heads d_model d_head -> (heads d_head) d_model")
        projected = F.linear(inputs[0], weight, torch.cat(biases).flatten())
        query, key, value = projected.unflatten(-1, (3, self.cfg.n_heads, self.cfg.d_head)).unbind(2)
        return query, key, value

    def _attend(self, q: Heads, k: Heads, v: Heads, mask: Mask | None) -> Heads:
        if listening(self.hook_attn_scores, self.hook_pattern):
            scores = einsum(q, k, "batch query head d_head, batch key head d_head -> batch head query key")
            allowed = self._allowed(scores, mask)
            scores = scores * self.score_scale
            if allowed is not None:
                scores = scores.masked_fill(~allowed, -torch.inf)
            pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
            return einsum(pattern, v, "batch head query key, batch key head d_head -> batch query head d_head")
        fused = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=None if mask is None else self._allowed(q[..., 0, :], mask),
            is_causal=self.cfg.causal and mask is None,
            scale=self.score_scale,
        )
        return fused.transpose(1, 2)

    def _allowed(self, x: Tensor, mask: Mask | None) -> Mask | None:
        if not self.cfg.causal:
            return mask
        n_pos = x.shape[-2]
        causal = torch.ones(n_pos, n_pos, dtype=torch.bool, device=x.device).tril()[None, None]
        return causal if mask is None else causal & mask


class MLP(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp))
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp))
        self.W_out = nn.Parameter(torch.empty(cfg.d_mlp, cfg.d_model))
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Stream) -> Stream:
        pre = self.hook_pre(F.linear(x, self.W_in.T, self.b_in))
        return F.linear(self.hook_post(F.relu(pre)), self.W_out.T, self.b_out)


class Block(nn.Module):
    hook_out_is_single_residual_stream = True  # what TransformerLens asks before it reads one

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.ln1 = LayerNorm(cfg)
        self.ln2 = LayerNorm(cfg)
        self.attn = Attention(cfg, layer)
        self.mlp = MLP(cfg)
        self.hook_attn_in = HookPoint()
        self.hook_q_input = HookPoint()
        self.hook_k_input = HookPoint()
        self.hook_v_input = HookPoint()
        self.hook_mlp_in = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_mlp_out = HookPoint()
        self.hook_resid_pre = HookPoint()
        self.hook_resid_mid = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, resid: Stream, rotation: tuple[Tensor, Tensor] | None, mask: Mask | None) -> Stream:
        resid_pre = self.hook_resid_pre(resid)
        attn_out = self.hook_attn_out(self.attn(self._attention_inputs(resid_pre), rotation, mask))
        resid_mid = self.hook_resid_mid(resid_pre + attn_out)
        mlp_in = self.hook_mlp_in(resid_mid.clone()) if self.cfg.use_hook_mlp_in else resid_mid
        mlp_out = self.hook_mlp_out(self.mlp(self.ln2(mlp_in)))
        return self.hook_resid_post(resid_mid + mlp_out)

    def _attention_inputs(self, resid: Stream) -> tuple[Stream] | tuple[SplitStream, SplitStream, SplitStream]:
        if not (self.cfg.use_attn_in or self.cfg.use_split_qkv_input):
            return (self.ln1(resid),)
        per_head = resid.unsqueeze(-2).expand(-1, -1, self.cfg.n_heads, -1)
        if self.cfg.use_attn_in:
            per_head = self.hook_attn_in(per_head.clone())
        if not self.cfg.use_split_qkv_input:
            normalized = self.ln1(per_head)
            return normalized, normalized, normalized
        points = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
        query, key, value = (self.ln1(point(per_head.clone())) for point in points)
        return query, key, value


class Unembed(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(cfg.d_model, cfg.d_vocab))
        self.b_U: Tensor
        self.register_buffer("b_U", torch.zeros(cfg.d_vocab), persistent=False)
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    def forward(self, resid: Stream) -> Logits:
        return self.hook_out(F.linear(self.hook_in(resid), self.W_U.T))


class Transformer(Counter):
    """A transformer counter with one of the five positional schemes."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.scheme = SCHEMES[cfg.position]
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        if self.scheme.table is not None:
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        if self.scheme.rotary:
            angles = rotary_angles(cfg.max_position, cfg.d_head)
            self.rotary_cos: Tensor
            self.rotary_sin: Tensor
            self.register_buffer("rotary_cos", angles.cos(), persistent=False)
            self.register_buffer("rotary_sin", angles.sin(), persistent=False)
        self.blocks = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        self.ln_final = LayerNorm(cfg)
        self.unembed = Unembed(cfg)
        self.setup()

    @property
    def ignores_positions(self) -> bool:  # type: ignore[override]
        """Whether logits do not depend on position ids at all."""
        return self.cfg.position == "nope"

    @property
    def ignores_shifts(self) -> bool:
        """Whether logits depend on differences of position ids at most."""
        return self.ignores_positions or self.scheme.rotary

    def _logits(
        self, token_ids: TokenIds, position_ids: PositionIds, attention_mask: Bool[Tensor, "batch pos"] | None
    ) -> Logits:
        resid = self.hook_embed(self.embed(token_ids))
        if self.scheme.table is not None:
            resid = resid + self.hook_pos_embed(self.pos_embed(position_ids))
        rotation = None
        if self.scheme.rotary:
            rotation = (
                self.rotary_cos[position_ids].unsqueeze(-2),
                self.rotary_sin[position_ids].unsqueeze(-2),
            )
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        for block in self.blocks:
            resid = block(resid, rotation, mask)
        return self.unembed(self.ln_final(resid))

    def init_weights(self, generator: torch.Generator) -> None:
        """GPT-2's: N(0, init_std), outputs of a block divided by sqrt(2 * n_layers), biases 0, norms 1.

        The token embedding has a std of its own, if the config gives one.
        """
        for name, parameter in self.named_parameters():
            kind = name.rsplit(".", 1)[-1]
            if kind.startswith("W_"):
                shrink = math.sqrt(2 * self.cfg.n_layers) if kind in ("W_O", "W_out") else 1.0
                std = self.cfg.init_std if kind != "W_E" or self.cfg.embed_std is None else self.cfg.embed_std
                normal_(parameter, std / shrink, generator)
            else:
                nn.init.constant_(parameter, 1.0 if kind == "w" else 0.0)

    @property
    def final_gain(self) -> Float[Tensor, "d_model"]:
        return self.ln_final.w

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, "d_model"]:
        """What the output biases of the blocks before a layer have added to its input, as TransformerLens has it."""
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        biases = [block.attn.b_O for block in blocks[: layer + mlp_input]]
        if include_mlp_biases:
            biases += [block.mlp.b_out for block in blocks[:layer]]
        return sum(biases, start=torch.zeros(self.cfg.d_model, device=self.device))

    # HookedTransformer's switches for the hook points that cost memory.
    def set_use_attn_result(self, value: bool) -> None:
        """Whether `attn.hook_result` fires: what each head adds to the residual stream."""
        self._switch(use_attn_result=value)

    def set_use_split_qkv_input(self, value: bool) -> None:
        """Whether `hook_q_input`, `hook_k_input` and `hook_v_input` fire, one residual stream a head."""
        self._switch(use_split_qkv_input=value)

    def set_use_attn_in(self, value: bool) -> None:
        """Whether `hook_attn_in` fires, one residual stream a head."""
        self._switch(use_attn_in=value)

    def set_use_hook_mlp_in(self, value: bool) -> None:
        """Whether `hook_mlp_in` fires."""
        self._switch(use_hook_mlp_in=value)

    def _switch_of(self, name: str) -> str | None:
        for suffix, flag in OPTIONAL_HOOKS.items():
            if name.endswith(suffix) and not getattr(self.cfg, flag):
                return f"set_{flag}"
        return None

    def _why_not(self, name: str) -> str:
        return " (a transformer carries no state from token to token)" if "state" in name else ""

    def _switch(self, **flags: bool) -> None:
        self.cfg = replace(self.cfg, **flags)
        for module in self.modules():
            if isinstance(module, Block | Attention):
                module.cfg = self.cfg

    def _folds(self) -> dict[str, Tensor]:
        """What HookedTransformer's format has multiplied into a tensor and this module keeps apart."""
        folds = {"embed.W_E": self.embed.gain}
        for layer in range(1, self.cfg.n_layers):
            for kind in ("W_Q", "b_Q"):
                folds[f"blocks.{layer}.attn.{kind}"] = torch.tensor(1 / (layer + 1), device=self.embed.gain.device)
        return folds

    def interchange_state(self) -> State:
        """HookedTransformer's state dict: loads into 2.x and 3.x as it is, into 4.x through its converter."""
        state = super().interchange_state()
        for name, fold in self._folds().items():
            state[name] = state[name] * fold
        if self.scheme.table is not None:
            state["pos_embed.W_pos"] = self.pos_embed.W_pos.detach()
        return state | {"unembed.b_U": self.unembed.b_U}

    def load_interchange_state(self, state: State) -> None:
        """The inverse of `interchange_state`; fixed tables are this module's own and not read."""
        own = {name: state[name] for name in self.state_dict()}
        for name, fold in self._folds().items():
            own[name] = own[name] / fold.where(fold != 0, 1)  # what was multiplied by 0 is 0 in the file
        self.load_state_dict(own)

    def transformer_lens_config(self) -> dict[str, Any]:
        """Fields of HookedTransformerConfig (2.x, 3.x) and TransformerBridgeConfig (4.x) alike."""
        cfg = self.cfg
        rotary = {"rotary_dim": cfg.d_head, "rotary_base": 10000, "rotary_adjacent_pairs": True}
        return {
            "n_layers": cfg.n_layers,
            "d_model": cfg.d_model,
            "n_ctx": cfg.max_position,
            "d_head": cfg.d_head,
            "n_heads": cfg.n_heads,
            "d_mlp": cfg.d_mlp,
            "d_vocab": cfg.d_vocab,
            "act_fn": "relu",
            "eps": cfg.eps,
            "normalization_type": "LN",
            "attention_dir": "causal" if cfg.causal else "bidirectional",
            "positional_embedding_type": "rotary" if self.scheme.rotary else "standard",
            "default_prepend_bos": False,
        } | (rotary if self.scheme.rotary else {})
