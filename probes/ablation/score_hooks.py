"""Hooks that replace attention scores by others, computed from the same queries and keys."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from models.hooks import hook_name
from models.shapes import HeadVectors
from models.transformer import Transformer
from models.transformer_block import Block
from probes.ablation.edits import Hooks

AttentionScores = Float[Tensor, "row head query key"]
# From an attention's scores, queries, keys and score scale, the scores that it shall use instead.
ChangeScores = Callable[[AttentionScores, HeadVectors, HeadVectors, float], AttentionScores]


def score_hooks(counter: Transformer, change: ChangeScores, rotated: bool = True) -> Hooks:
    """Hooks that apply `change` to the scores of every layer; it gets queries and keys rotated or not."""
    hooks: list[tuple[str, Callable[..., Tensor]]] = []
    for layer, block in enumerate(counter.blocks):
        assert isinstance(block, Block)
        names = counter.qkv_hooks(layer)[:2] if rotated else (hook_name("q", layer), hook_name("k", layer))
        queries_keys: list[Tensor] = []
        hooks += [(name, partial(_remember, queries_keys)) for name in names]
        hooks.append((hook_name("attn_scores", layer), partial(_change, change, queries_keys, block.attn.score_scale)))
    return tuple(hooks)


def compute_scores(q: HeadVectors, k: HeadVectors, scale: float) -> AttentionScores:
    """The scores of all pairs of queries and keys, without a mask."""
    return torch.einsum("bqhd,bkhd->bhqk", q, k) * scale


def _remember(queries_keys: list[Tensor], value: Tensor, hook: object) -> Tensor:
    """A hook that appends queries, which come first, and keys to the list."""
    queries_keys.append(value)
    return value


def _change(
    change: ChangeScores, queries_keys: list[Tensor], scale: float, scores: AttentionScores, hook: object
) -> AttentionScores:
    """A hook that returns the changed scores and empties the list for the next run."""
    q, k = queries_keys
    queries_keys.clear()
    return change(scores.clone(), q, k, scale)
