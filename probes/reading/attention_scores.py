"""Mean and std of attention scores for each pair of tokens: exact at layer 0, sampled over contexts in later layers.

The *source* is the token of the query, the *target* that of the key, as in the paper (appendix E); a PID is a position
id. Scores are those of `hook_attn_scores`: divided by sqrt(d_head) and by layer + 1.

The softmax cancels everything that is the same for all keys of a query, so that must not count as variation. At layer 0
the mean key is subtracted from all keys (unless keys are rotated: then no part of them is the same at all PIDs), and
from a scheme's bias its mean over the keys that a query sees. In later layers the mean of each query's scores is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.hooks import hook_name
from models.position_tables import rotate
from models.transformer import Transformer
from models.transformer_block import Block
from training.batches import Batch, draw_batch
from training.tasks import MAIN_SPLITS, PAD, Task

ROWS_TO_SEE_TOKENS = 1024  # enough for every start number to occur
ROWS_AT_ONCE = 32

Ids = Int[Tensor, "token"]
PairArray = Float[np.ndarray, "head source target"]
PairTable = Float[Tensor, "head source target"]
Projected = Float[Tensor, "token pid head d_head"]  # queries or keys of each token at each PID


@dataclass(frozen=True)
class Moments:
    """The mean and std of the scores of each head and token pair; NaN for pairs that were never seen."""

    mean: PairArray
    std: PairArray


@dataclass(frozen=True)
class TokenPairs:
    """The tokens in a task's rows, and which (source, target) pairs of them can occur."""

    ids: Ids
    occurs: Bool[np.ndarray, "source target"]


def occurring_pairs(task: Task, causal: bool, generator: torch.Generator) -> TokenPairs:
    """The input tokens of a task and the pairs that occur among them, in a sample of rows of both splits."""
    rows = [task.sample(split, ROWS_TO_SEE_TOKENS, generator).token_ids for split in MAIN_SPLITS]
    pad = task.vocab.id(PAD)
    ids = torch.cat([part.unique() for part in rows]).unique()
    ids = ids[ids != pad]
    occurs = torch.zeros(len(ids), len(ids), dtype=torch.bool, device=ids.device)
    for part in rows:
        here = part[:, :, None] == ids
        present = here.any(1)
        both = present[:, :, None] & present[:, None, :]
        if causal:
            first, last = here.int().argmax(1), part.shape[1] - 1 - here.flip(1).int().argmax(1)
            both &= last[:, :, None] >= first[:, None, :]
        occurs |= both.any(0)
    return TokenPairs(ids, occurs.cpu().numpy())


def exact_moments(counter: Transformer, token_ids: Ids, among: Int[Tensor, "any"] | None = None) -> Moments:
    """The moments at layer 0 over all PID pairs that the mask allows, each pair once.

    Keys are taken relative to the mean key of the tokens `among`, by default of `token_ids`.

    Layer 0 sees only a token and its PID, so all scores follow from one query and one key per token and PID. If nothing
    is added to embeddings or scores, they depend only on the difference of the PIDs, and each difference is weighted by
    the number of pairs that have it.
    """
    with torch.inference_mode():
        n = 1 if counter.ignores_positions else counter.cfg.max_position
        q, k = _queries_and_keys(counter, token_ids, n)
        if not counter.scheme.rotary:
            k = k - _queries_and_keys(counter, token_ids if among is None else among, n)[1].mean((0, 1))
        no_bias = counter.bias_at(token_ids[None, :1], token_ids[None, :1]) is None
        mean, std = (_by_difference if counter.ignores_shifts and no_bias else _by_pair)(counter, q, k)
    return Moments(_numpy(mean), _numpy(std))


def n_pid_pairs(counter: Transformer) -> int:
    """The number of PID pairs that the mask allows, a PID with itself included."""
    n = counter.cfg.max_position
    return n * (n + 1) // 2 if counter.cfg.causal else n * n


def _queries_and_keys(counter: Transformer, token_ids: Ids, n_pids: int) -> tuple[Projected, Projected]:
    """The queries and keys of layer 0 for each token at each PID, rotated if the scheme rotates."""
    block = _first_block(counter)
    pids = torch.arange(n_pids, device=token_ids.device).expand(len(token_ids), -1)
    # If the scheme sees only distances, the stream is the same at all PIDs: one projection serves them all.
    added = pids[:, :1] if counter.ignores_shifts else pids
    resid = counter.embed_tokens(token_ids[:, None].expand_as(added), added)
    q, k = (x.expand(-1, n_pids, -1, -1) for x in block.attn.project(block.ln1(resid), "QK"))
    rotation = counter.rotation_at(pids)
    return (q, k) if rotation is None else (rotate(q, *rotation), rotate(k, *rotation))


def _by_difference(counter: Transformer, q: Projected, k: Projected) -> tuple[PairTable, PairTable]:
    """Mean and std over the differences of PIDs, each weighted by the number of pairs that have it."""
    n = q.shape[1]
    scale = _first_block(counter).attn.score_scale
    scores = einsum(q, k[:, 0], "source pid head d, target head d -> head source target pid") * scale
    weights = torch.arange(n, 0, -1, device=q.device, dtype=q.dtype)
    if not counter.cfg.causal:
        back = einsum(q[:, 0], k[:, 1:], "source head d, target pid head d -> head source target pid") * scale
        scores, weights = torch.cat([scores, back], -1), torch.cat([weights, weights[1:]])
    share = weights / weights.sum()
    mean = scores @ share
    return mean, ((scores - mean[..., None]).square() @ share).sqrt()


def _by_pair(counter: Transformer, q: Projected, k: Projected) -> tuple[PairTable, PairTable]:
    """Mean and std over all pairs of PIDs: means from sums of keys, then the squares of the centred scores.

    It takes one source and one head at a time, so that their scores stay in the processor's cache: 3 times as fast as
    all at once.
    """
    n, causal = counter.cfg.max_position, counter.cfg.causal
    q = rearrange(q * _first_block(counter).attn.score_scale, "source query head d -> head source query d").contiguous()
    k = rearrange(k, "target key head d -> head target key d").contiguous()
    allowed = torch.ones(n, n, device=q.device, dtype=q.dtype)
    share = (allowed.tril() if causal else allowed) / n_pid_pairs(counter)
    bias = _bias(counter, share)
    reach = k.double().cumsum(2) if causal else k.double().sum(2, keepdim=True).expand_as(k)
    mean = (q.double().flatten(2) @ reach.flatten(2).mT).to(q.dtype) / n_pid_pairs(counter)
    mean = mean + (bias * share).sum((1, 2))[:, None, None]
    variance = torch.empty_like(mean)
    biases = bias.expand(len(q), -1, -1)
    for of_head, source_q, target_k, source_mean, head_bias in zip(variance, q, k.mT, mean, biases, strict=True):
        for source, centre in enumerate(source_mean):
            queries = source_q[source].expand(len(target_k), -1, -1)
            centred = torch.baddbmm(head_bias - centre[:, None, None], queries, target_k)
            of_head[source] = centred.square_().flatten(1) @ share.flatten()
    return mean, variance.sqrt()


def _bias(counter: Transformer, share: Float[Tensor, "query key"]) -> Float[Tensor, "#head #query #key"]:
    """The scheme's bias on the scores between all PIDs, minus its mean over the keys that each query sees."""
    pids = torch.arange(len(share), device=share.device)[None]
    bias = counter.bias_at(pids, pids)
    if bias is None:
        return torch.zeros(1, 1, 1, device=share.device)
    return bias[0] - (bias[0] * share).sum(-1, keepdim=True) / share.sum(-1, keepdim=True)


def _first_block(counter: Transformer) -> Block:
    block = counter.blocks[0]
    assert isinstance(block, Block)
    return block


def sampled_moments(
    counter: Transformer, task: Task, policy: str, layers: Sequence[int], token_ids: Ids, rows: int, seed: int
) -> list[Moments]:
    """The moments at each of these layers over all pairs of positions in `rows` random rows of each split.

    A score also depends on the rest of the row, so the std includes the variation between contexts.
    """
    shape = counter.cfg.n_heads, len(token_ids), len(token_ids)
    sums = {layer: torch.zeros(3, *shape, dtype=torch.float64, device=token_ids.device) for layer in layers}
    index = torch.full((counter.cfg.d_vocab,), -1, device=token_ids.device)
    index[token_ids] = torch.arange(len(token_ids), device=token_ids.device)
    generator = torch.Generator(token_ids.device).manual_seed(seed)
    with torch.inference_mode():
        for split in MAIN_SPLITS:
            batch = draw_batch(task, policy, counter.cfg.max_position, split, rows, generator)
            for start in range(0, rows, ROWS_AT_ONCE):
                _accumulate(counter, batch, slice(start, start + ROWS_AT_ONCE), index, sums)
    return [_moments_of_sums(sums[layer]) for layer in layers]


def _accumulate(
    counter: Transformer,
    batch: Batch,
    part: slice,
    index: Int[Tensor, "d_vocab"],
    sums: dict[int, Float[Tensor, "three head source target"]],
) -> None:
    """Adds the number, sum and sum of squares of the scores of some rows to `sums`, by pair of tokens."""
    n_tokens = next(iter(sums.values())).shape[-1]
    which = index[batch.token_ids[part]]
    one_hot = (which[..., None] == torch.arange(n_tokens, device=which.device)).double()

    def collect(layer: int) -> Callable[..., None]:
        def add(scores: Float[Tensor, "batch head query key"], hook: object) -> None:
            seen = scores.isfinite()
            values = scores.double().where(seen, 0.0)
            values = (values - values.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)).where(seen, 0.0)
            terms = torch.stack([seen.double(), values, values.square()])
            by_source = torch.einsum("bqs,nbhqk->nbhsk", one_hot, terms)
            sums[layer] += torch.einsum("nbhsk,bkt->nhst", by_source, one_hot)

        return add

    mask = None if counter.cfg.causal else batch.attention_mask[part]
    hooks = [(hook_name("attn_scores", layer=layer), collect(layer)) for layer in sums]
    counter.run_with_hooks(batch.token_ids[part], batch.position_ids[part], mask, fwd_hooks=hooks)


def _moments_of_sums(sums: Float[Tensor, "three head source target"]) -> Moments:
    """Mean and std from the number, sum and sum of squares."""
    number, total, squares = sums
    mean = total / number  # 0 / 0 for a pair that was never seen
    return Moments(_numpy(mean), _numpy((squares / number - mean.square()).clamp(min=0).sqrt()))


def _numpy(table: PairTable) -> PairArray:
    return table.double().cpu().numpy()
