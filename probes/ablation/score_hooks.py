"""Hooks that give attention other scores than its own, from the queries and keys that it has."""

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

Scores = Float[Tensor, "row head query key"]
# From an attention's scores, queries, keys and score scale, the scores that it shall use instead.
ChangeScores = Callable[[Scores, HeadVectors, HeadVectors, float], Scores]


def score_hooks(counter: Transformer, change: ChangeScores, rotated: bool = True) -> Hooks:
    """Hooks that change the scores of every layer; queries and keys are as attention gets them, or not yet rotated."""
    hooks: list[tuple[str, Callable[..., Tensor]]] = []
    for layer, block in enumerate(counter.blocks):
        assert isinstance(block, Block)
        names = counter.qkv_hooks(layer)[:2] if rotated else (hook_name("q", layer), hook_name("k", layer))
        seen: list[Tensor] = []
        hooks += [(name, partial(_note, seen)) for name in names]
        hooks.append((hook_name("attn_scores", layer), partial(_change, change, seen, block.attn.score_scale)))
    return tuple(hooks)


def products(q: HeadVectors, k: HeadVectors, scale: float) -> Scores:
    """The scores of all pairs, without a mask."""
    return torch.einsum("bqhd,bkhd->bhqk", q, k) * scale


def _note(seen: list[Tensor], value: Tensor, hook: object) -> Tensor:
    """Remembers queries, which come first, and keys."""
    seen.append(value)
    return value


def _change(change: ChangeScores, seen: list[Tensor], scale: float, scores: Scores, hook: object) -> Scores:
    q, k = seen
    seen.clear()
    return change(scores.clone(), q, k, scale)
