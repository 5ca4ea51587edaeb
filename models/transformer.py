"""Transformer counters: HookedTransformer's parameter and hook names, every positional scheme, one class.

Structure (paper, section 3.2): embedding, pre-LN blocks (`models.transformer_block`), final LN, untied unembedding
without bias. A run can start at any layer and position: `Transformer.run_from`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache
from transformer_lens.hook_points import HookPoint

from models.attention import Attention, KeysValues, Mask, Rotation, causal_mask
from models.config import TransformerConfig
from models.counter import Counter, StateDict, normal_
from models.errors import CountLensError
from models.hooks import hook_name
from models.position_tables import rotary_waves
from models.schemes import SCHEMES
from models.shapes import Logits, PositionIds, Stream, TokenIds
from models.transformer_block import OPTIONAL_HOOKS, Block, LayerNorm


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
            cos, sin = rotary_waves(cfg.max_position, cfg.d_head, cfg.periods)
            self.rotary_cos: Tensor
            self.rotary_sin: Tensor
            self.register_buffer("rotary_cos", cos, persistent=False)
            self.register_buffer("rotary_sin", sin, persistent=False)
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

    @property
    def learned_positions(self) -> nn.Parameter | None:
        """W_pos if it is trained."""
        table = self.pos_embed.W_pos if self.scheme.learned else None
        return table if isinstance(table, nn.Parameter) else None

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
