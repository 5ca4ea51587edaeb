"""Attention of a transformer counter: queries, keys and values, their weighted sums, and what heads write.

The scores of layer l are divided by sqrt(d_head) and by l + 1 (paper, section 3.2). With a hook at the scores or the
pattern, attention is computed step by step; without one it is fused. The numbers are the same.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import TransformerConfig
from models.counter import listening
from models.position_tables import rotate
from models.schemes import SCHEMES
from models.shapes import HeadVectors, Stream

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
