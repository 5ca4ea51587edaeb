"""Transformer counters: HookedTransformer's parameter and hook names, every positional scheme, one class.

Structure (paper, section 3.2): pre-LN GPT-2 blocks, ReLU, final LN, untied unembedding without bias; the
attention scores of layer l are divided by sqrt(d_head) and by l + 1. With a hook at the scores or the pattern,
attention is computed step by step; without one it is fused. The numbers are the same.

A block has three steps, of which only the middle one mixes positions: `Block.read` returns queries, keys and values,
`Attention.attend` returns z, `Block.finish` returns the residual stream after the block. So a run can start at any
layer and position if the keys and values of earlier positions are given: `Transformer.run_from`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache
from transformer_lens.hook_points import HookPoint

from models.config import TransformerConfig
from models.counter import Counter, StateDict, listening, normal_
from models.errors import CountLensError
from models.hooks import hook_name
from models.position_tables import rotary_angles, rotate
from models.schemes import SCHEMES
from models.shapes import HeadVectors, Logits, PositionIds, Stream, TokenIds

SplitStream = Float[Tensor, "batch pos head d_model"]
AttentionInputs = tuple[Stream] | tuple[SplitStream, SplitStream, SplitStream]  # for all of q, k and v, or for each
Queries = Float[Tensor, "batch query head d_head"]
Keys = Float[Tensor, "batch key head d_head"]
# Which keys a query may attend to: booleans, or numbers that are added to the scores, where -inf hides a key.
Mask = Bool[Tensor, "#row 1 #query key"] | Float[Tensor, "#row head #query #key"]
Rotation = tuple[Float[Tensor, "row pos 1 d_head"], Float[Tensor, "row pos 1 d_head"]]  # cos and sin


class KeysValues(NamedTuple):
    """The keys (rotated, if the scheme rotates) and values of some positions."""

    keys: HeadVectors
    values: HeadVectors

    def followed_by(self, keys: HeadVectors, values: HeadVectors) -> tuple[Keys, Keys]:
        """These keys and values, followed by those of later positions.

        The later ones may come from several copies of the rows, copy after copy.
        """
        copies = len(keys) // len(self.keys)
        k, v = (
            torch.cat([past.expand(copies, *past.shape), new.unflatten(0, (copies, -1))], 2).flatten(0, 1)
            for past, new in zip(self, (keys, values), strict=True)
        )
        return k, v


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
        scheme = SCHEMES[cfg.position]
        self.register_buffer("gain", scheme.function(scheme.gain)(cfg.d_model), persistent=False)

    def forward(self, token_ids: TokenIds) -> Stream:
        return F.embedding(token_ids, self.W_E * self.gain)


class PosEmbed(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        scheme = SCHEMES[cfg.position]
        assert scheme.table is not None
        waves = {} if scheme.waves_over is None else {"periods": cfg.periods}
        table = scheme.function(scheme.table)(cfg.max_position, cfg.d_model, **waves)
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

    def project(self, x: Stream | SplitStream, kinds: str) -> tuple[HeadVectors, ...]:
        """The projections named by `kinds`, not yet rotated: "KV" returns keys and values, "Q" queries."""
        weights, biases = ([getattr(self, f"{name}_{kind}") for kind in kinds] for name in "Wb")
        if x.ndim == 4:
            (weight,), (bias,) = weights, biases
            return (einsum(x, weight, "batch pos head d_model, head d_model d_head -> batch pos head d_head") + bias,)
        # One matrix product for all: copying the weights is far cheaper than several calls.
        weight = rearrange(torch.cat(weights), "heads d_model d_head -> (heads d_head) d_model")
        projected = F.linear(x, weight, torch.cat(biases).flatten())
        return projected.unflatten(-1, (len(kinds), self.cfg.n_heads, self.cfg.d_head)).unbind(2)

    def qkv(
        self, inputs: AttentionInputs, rotation: Rotation | None, queries: Int[Tensor, "query"] | None = None
    ) -> tuple[Queries, HeadVectors, HeadVectors]:
        """Queries at the given places (all by default), keys and values; rotated, if the scheme rotates."""
        if len(inputs) == 1 and queries is None:
            query, key, value = self.project(inputs[0], "QKV")
        elif len(inputs) == 1:
            ((query,), (key, value)) = self.project(inputs[0][:, queries], "Q"), self.project(inputs[0], "KV")
        else:
            at = slice(None) if queries is None else queries
            split = (inputs[0][:, at], *inputs[1:])
            query, key, value = (self.project(x, kind)[0] for x, kind in zip(split, "QKV", strict=True))
        q, k, v = self.hook_q(query), self.hook_k(key), self.hook_v(value)
        if rotation is not None:
            cos, sin = rotation if queries is None else (angle[:, queries] for angle in rotation)
            q, k = self.hook_rot_q(rotate(q, cos, sin)), self.hook_rot_k(rotate(k, *rotation))
        return q, k, v

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask | None) -> Queries:
        """The weighted sums of values, z. Without a mask, queries and keys must be of the same positions."""
        if listening(self.hook_attn_scores, self.hook_pattern):
            scores = einsum(q, k, "batch query head d_head, batch key head d_head -> batch head query key")
            scores = scores * self.score_scale
            if mask is None and self.cfg.causal:
                mask = causal_mask(q.shape[1], q.device)
            if mask is not None:
                scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, -torch.inf)
            pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
            return einsum(pattern, v, "batch head query key, batch key head d_head -> batch query head d_head")
        fused = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            is_causal=self.cfg.causal and mask is None,
            scale=self.score_scale,
        )
        return fused.transpose(1, 2)

    def write(self, z: HeadVectors) -> Stream:
        """What all heads together add to the residual stream."""
        z = self.hook_z(z)
        if self.cfg.use_attn_result:
            result = einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos head d_model")
            return self.hook_result(result).sum(-2) + self.b_O
        return F.linear(z.flatten(-2), self.W_O.flatten(0, 1).T, self.b_O)


def causal_mask(
    n_pos: int, device: torch.device, queries: Int[Tensor, "query"] | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """True where a query (all positions by default) may attend to a key: up to the query's own position."""
    keys = torch.arange(n_pos, device=device)
    return (keys <= (keys if queries is None else queries)[:, None])[None, None]


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
        # In place if neither a hook nor a gradient needs `pre`: two of these wide tensors do not fit the cache.
        post = self.hook_post(F.relu(pre, inplace=not (pre.requires_grad or listening(self.hook_pre))))
        return F.linear(post, self.W_out.T, self.b_out)


class Block(nn.Module):
    hook_out_is_single_residual_stream = True  # TransformerLens checks this before it reads the stream

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

    def forward(
        self,
        resid: Stream,
        rotation: Rotation | None,
        mask: Mask | None,
        past: KeysValues | None = None,
        queries: Int[Tensor, "query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the block, from the stream before it.

        `past` holds the keys and values of earlier positions, if `resid` does not begin at the first one.
        `queries` are the places in `resid` at which the stream is computed: all by default.
        """
        resid_pre, q, k, v = self.read(resid, rotation, queries)
        if past is not None:
            k, v = past.followed_by(k, v)
        return self.finish(resid_pre, self.attn.attend(q, k, v, mask))

    def read(
        self, resid: Stream, rotation: Rotation | None, queries: Int[Tensor, "query"] | None = None
    ) -> tuple[Float[Tensor, "batch query d_model"], Queries, HeadVectors, HeadVectors]:
        """The stream and the queries at the places `queries` (all by default), and keys and values at all places."""
        resid_pre = self.hook_resid_pre(resid)
        q, k, v = self.attn.qkv(self._attention_inputs(resid_pre), rotation, queries)
        return resid_pre if queries is None else resid_pre[:, queries], q, k, v

    def finish(self, resid_pre: Stream, z: HeadVectors) -> Stream:
        """The stream after the block, from the stream before it and z at the same positions."""
        resid_mid = self.hook_resid_mid(resid_pre + self.hook_attn_out(self.attn.write(z)))
        mlp_in = self.hook_mlp_in(resid_mid.clone()) if self.cfg.use_hook_mlp_in else resid_mid
        mlp_out = self.hook_mlp_out(self.mlp(self.ln2(mlp_in)))
        return self.hook_resid_post(resid_mid + mlp_out)

    def _attention_inputs(self, resid: Stream) -> AttentionInputs:
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
    """A transformer counter with one of the positional schemes."""

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
            angles = rotary_angles(cfg.max_position, cfg.d_head, cfg.periods)
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
        return self.scheme.sees == "nothing"

    @property
    def ignores_shifts(self) -> bool:
        """Whether a shift of all position ids leaves the logits unchanged."""
        return self.scheme.sees != "positions"

    def _logits(
        self, token_ids: TokenIds, position_ids: PositionIds, attention_mask: Bool[Tensor, "batch pos"] | None
    ) -> Logits:
        return self.run_from(0, 0, self.embed_tokens(token_ids, position_ids), position_ids, {}, attention_mask)

    def embed_tokens(self, token_ids: TokenIds, position_ids: PositionIds) -> Stream:
        """The residual stream that enters the first block."""
        resid = self.hook_embed(self.embed(token_ids))
        if self.scheme.table is None:
            return resid
        return resid + self.hook_pos_embed(self.pos_embed(position_ids))

    def run_from(
        self,
        layer: int,
        first: int,
        resid: Float[Tensor, "row later d_model"],
        position_ids: PositionIds,
        cache: Mapping[str, Tensor] | ActivationCache,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
        reads: Int[Tensor, "query"] | None = None,
    ) -> Float[Tensor, "row query d_vocab"]:
        """Logits at all places from `first` on, computed from the residual stream `resid` that enters `layer` there.

        `position_ids` and `attention_mask` are those of whole rows. `cache` is that of a run on them, from which the
        keys and values of the places before `first` are taken (`qkv_hooks`); if `first` is 0 it may be empty. `resid`
        can hold several copies of the rows, each edited differently, copy after copy. `reads` restricts the logits to
        some of the places, in ascending order and none before `first`.
        """
        (n_rows, n_pos), copies = position_ids.shape, len(resid) // len(position_ids)
        if resid.shape[:2] != (copies * n_rows, n_pos - first):
            raise CountLensError(
                f"resid has {len(resid)} rows of {resid.shape[1]} positions: a run of {n_rows} rows from position "
                f"{first} of {n_pos} on takes {n_pos - first}, and {n_rows} rows or several copies of them"
            )
        if first and not self.cfg.causal:
            raise CountLensError(f"this counter also sees later tokens: run it from position 0, not from {first}")
        rotation = self.rotation_at(position_ids[:, first:], copies)
        everywhere = torch.arange(first, n_pos, device=resid.device) if first else None
        mask = self.visible_keys(position_ids, everywhere, attention_mask, copies)
        queries = None if reads is None or len(reads) == n_pos - first else reads - first
        for number, block in enumerate(islice(self.blocks, layer, None), layer):
            past = self._past(cache, number, first) if first else None
            if queries is None or number < self.cfg.n_layers - 1:
                resid = block(resid, rotation, mask, past)
            else:
                mask = self.visible_keys(position_ids, reads, attention_mask, copies)
                resid = block(resid, rotation, mask, past, queries)
        if queries is not None and layer == self.cfg.n_layers:
            resid = resid[:, queries]
        return self.read_out(resid)

    def read_out(self, resid: Stream) -> Logits:
        """Logits from the residual stream after the last block."""
        return self.unembed(self.ln_final(resid))

    def rotation_at(self, position_ids: PositionIds, copies: int = 1) -> Rotation | None:
        """Cosines and sines of the rotation at these ids, repeated for each copy of the rows; None without rotation."""
        if not self.scheme.rotary:
            return None
        position_ids = position_ids.repeat(copies, 1)
        return self.rotary_cos[position_ids].unsqueeze(-2), self.rotary_sin[position_ids].unsqueeze(-2)

    def visible_keys(
        self,
        position_ids: PositionIds,
        queries: Int[Tensor, "query"] | None,
        attention_mask: Bool[Tensor, "batch key"] | None,
        copies: int = 1,
    ) -> Mask | None:
        """The mask for these queries (all, if None) over the keys of whole rows, with the scheme's bias if it has one.

        None if `attend` needs no mask. `copies`: the rows are run in so many copies, copy after copy.
        """
        padding = None if attention_mask is None else attention_mask[:, None, None, :]
        bias = self.bias_at(position_ids if queries is None else position_ids[:, queries], position_ids)
        mask: Tensor | None = padding
        if self.cfg.causal and not (padding is None and queries is None and bias is None):
            causal = causal_mask(position_ids.shape[1], position_ids.device, queries)
            mask = causal if padding is None else causal & padding
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        return mask.repeat(copies, 1, 1, 1) if mask is not None and len(mask) > 1 else mask

    def bias_at(
        self, query_ids: Int[Tensor, "batch query"], key_ids: Int[Tensor, "batch key"]
    ) -> Float[Tensor, "batch head query key"] | None:
        """What the scheme adds to the scores between these position ids; None if it adds nothing."""
        if self.scheme.bias is None:
            return None
        bias = self.scheme.function(self.scheme.bias)(query_ids, key_ids, self.cfg.n_heads)
        return bias.to(self.embed.W_E.dtype)

    def qkv_hooks(self, layer: int) -> tuple[str, str, str]:
        """The hook points of queries, keys and values as attention uses them: rotated, if the scheme rotates."""
        turned = "rot_" if self.scheme.rotary else ""
        return hook_name(f"{turned}q", layer), hook_name(f"{turned}k", layer), hook_name("v", layer)

    def _past(self, cache: Mapping[str, Tensor] | ActivationCache, layer: int, first: int) -> KeysValues:
        keys, values = (cache[name][:, :first] for name in self.qkv_hooks(layer)[1:])
        return KeysValues(keys, values)

    def init_weights(self, generator: torch.Generator) -> None:
        """As in GPT-2: weights from N(0, init_std), a block's outputs divided by sqrt(2 * n_layers), biases 0, norms 1.

        The token embedding has a std of its own if the config gives one.
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
        """The sum of the output biases of the blocks before a layer, under TransformerLens' name for it."""
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
        """Whether `hook_q_input`, `hook_k_input` and `hook_v_input` fire, one residual stream per head."""
        self._switch(use_split_qkv_input=value)

    def set_use_attn_in(self, value: bool) -> None:
        """Whether `hook_attn_in` fires, one residual stream per head."""
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
        """By tensor name, the factors that this module keeps apart and HookedTransformer's format has multiplied in."""
        folds = {"embed.W_E": self.embed.gain}
        for layer in range(1, self.cfg.n_layers):
            for kind in ("W_Q", "b_Q"):
                folds[f"blocks.{layer}.attn.{kind}"] = torch.tensor(1 / (layer + 1), device=self.embed.gain.device)
        return folds

    def interchange_state(self) -> StateDict:
        """The tensors in HookedTransformer's format: 2.x and 3.x load it as it is, 4.x through its converter."""
        state = super().interchange_state()
        for name, fold in self._folds().items():
            # A meta tensor has a shape and no numbers; to multiply it would import torch._dynamo, which takes a second.
            state[name] = state[name] if state[name].is_meta else state[name] * fold
        if self.scheme.table is not None:
            state["pos_embed.W_pos"] = self.pos_embed.W_pos.detach()
        return state | {"unembed.b_U": self.unembed.b_U}

    def load_interchange_state(self, state: StateDict) -> None:
        """The inverse of `interchange_state`. Fixed tables are not read: this module builds its own."""
        own = {name: state[name] for name in self.state_dict()}
        for name, fold in self._folds().items():
            own[name] = own[name] / fold.where(fold != 0, 1)  # what was multiplied by 0 is 0 in the file
        self.load_state_dict(own)

    def transformer_lens_config(self) -> dict[str, Any] | None:
        """Fields for HookedTransformerConfig (2.x, 3.x) and TransformerBridgeConfig (4.x).

        None if the scheme adds a bias to attention scores or has periods of its own: TransformerLens has neither.
        """
        if self.scheme.bias is not None or (self.scheme.rotary and self.cfg.periods is not None):
            return None
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
