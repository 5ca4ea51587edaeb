"""Path patching: what goes directly from a sender to a receiver is patched, and nothing else that the sender writes.

The sender is a head (`z`), an attention layer, an MLP or an embedding: what it writes into the residual stream in the
donor's run, minus what it writes in the receiver's, is added to the input of one later reader alone (Wang et al. 2022).

    receiver    reads at                                        axes of the grid
    q, k, v     later layers, one head's queries, keys, values  layer, head, and pos if it is asked for
    mlp         its own layer on behind attention, else later   layer, and pos if it is asked for
    logits      the end: the sender's direct effect             layer (the last), and pos if it is asked for
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.hooks import hook_name
from models.transformer import Block, LayerNorm, Transformer
from probes.patching import Activations, PatchGrid, Rerun, check_pair, patch_grid
from probes.patching_cells import grid_axes
from probes.patching_metrics import Metric
from probes.result import NotApplicable
from probes.sites import GLOBAL_KINDS, Site
from training.batches import Batch

SENDERS = ("embed", "pos_embed", "z", "attn_out", "mlp_out")
RECEIVERS = {"q": "q", "k": "k", "v": "v", "mlp": "mlp_out", "logits": "resid_post"}  # and the site that it changes


def path_patch(
    counter: Counter,
    clean: Batch,
    corrupted: Batch,
    sender: Site,
    receiver: str = "q",
    metric: str | Metric = "logit_diff",
    *,
    direction: str = "denoise",
    axes: Sequence[str] | None = None,
    at: Sequence[int] | None = None,
) -> PatchGrid:
    """The metric for each path from the sender to a receiver, at all positions of it or, with `pos` in axes, at one."""
    if not isinstance(counter, Transformer):
        raise NotApplicable("paths run through a transformer's residual stream: this counter is recurrent")
    if receiver not in RECEIVERS:
        raise unknown("receiver", receiver, RECEIVERS)
    _check_sender(counter, sender)
    check_pair(clean, corrupted)
    site, layers = RECEIVERS[receiver], _later_layers(counter, sender, receiver)
    if axes is None:
        axes = ("layer", "head") if receiver in "qkv" else ("layer",)
    grid = grid_axes(counter, site, clean.token_ids.shape[1], axes, {"layer": layers})

    def made(rerun: Rerun, cache: Activations) -> dict[str, Tensor]:
        written = _written(counter, sender, cache[sender.hook] - rerun.cache[sender.hook])
        blocks = [(layer, counter.blocks[layer]) for layer in layers]
        return {
            hook_name(site, layer): _read(block, receiver, layer, rerun.cache, written)
            for layer, block in blocks
            if isinstance(block, Block)
        }

    label = f"{sender.label} -> {receiver}"
    return patch_grid(counter, clean, corrupted, site, metric, direction, grid, at, [sender.hook], made, label)


def _check_sender(counter: Transformer, sender: Site) -> None:
    if sender.kind not in SENDERS:
        raise unknown("sender", sender.kind, SENDERS)
    layers, heads = counter.cfg.n_layers, counter.cfg.n_heads
    layered = sender.kind not in GLOBAL_KINDS
    if sender.hook not in counter.hook_dict or layered != (sender.layer is not None):
        raise CountLensError(f"{sender.label} does not write into this counter's stream: it has {layers} layers")
    if sender.head is not None and (sender.kind != "z" or not 0 <= sender.head < heads):
        raise CountLensError(f"there is no {sender.label}: only z has heads, here 0..{heads - 1}")


def _later_layers(counter: Transformer, sender: Site, receiver: str) -> list[int]:
    last = counter.cfg.n_layers - 1
    if receiver == "logits":
        return [last]
    first = 0 if sender.layer is None else sender.layer + 1
    if receiver == "mlp" and sender.layer is not None and sender.kind != "mlp_out":
        first = sender.layer  # attention writes before its own layer's MLP reads
    if first > last:
        raise CountLensError(
            f"nothing reads {sender.label} as {receiver}: it is in the last layer; receiver='logits' does"
        )
    return list(range(first, last + 1))


def _written(counter: Transformer, sender: Site, difference: Tensor) -> Tensor:
    """What the sender's difference adds to the residual stream, [batch, pos, d_model]."""
    if sender.kind != "z":
        return difference
    block = counter.blocks[sender.layer or 0]
    assert isinstance(block, Block)
    weight = block.attn.W_O
    if sender.head is not None:
        return difference[:, :, sender.head] @ weight[sender.head]
    return difference.flatten(-2) @ weight.flatten(0, 1)


def _read(block: Block, receiver: str, layer: int, kept: Activations, written: Tensor) -> Tensor:
    """What the receiver makes of its input with the difference in it."""
    if receiver == "logits":
        return kept[hook_name("resid_post", layer)] + written
    if receiver == "mlp":
        hidden = F.linear(_normed(block.ln2, kept[hook_name("resid_mid", layer)] + written), block.mlp.W_in.T)
        return F.linear((hidden + block.mlp.b_in).relu(), block.mlp.W_out.T, block.mlp.b_out)
    weight, bias = (getattr(block.attn, f"{kind}_{receiver.upper()}") for kind in "Wb")
    normed = _normed(block.ln1, kept[hook_name("resid_pre", layer)] + written)
    return F.linear(normed, weight.mT.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)


def _normed(norm: LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.w.shape, norm.w, norm.b, norm.eps)
