"""Patched runs of a transformer: many at a time, each started at its patch.

A patch is a hook on the counter's own blocks, and only what it can change is computed again. Until the next attention,
a change stays at the position of its cell, so the steps of a block before and after attention run only there. Attention
spreads it to all later positions (without a causal mask to all). From there on the counter runs whole rows, with the
unpatched keys and values of earlier positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.hooks import hook_name
from models.shapes import PositionIds, Stream, TokenIds
from models.transformer import Transformer
from models.transformer_block import Block
from probes.patching.brief_hooks import brief_hooks, run_and_cache
from probes.patching.metrics import CellLogits
from probes.patching.patch_cells import PatchCells
from probes.sites import Site

AT_ONE_QUERY = ("q", "rot_q", "pattern")  # they affect only the attention of their own position
BEHIND_ATTENTION = ("z", "attn_out", "resid_mid", "mlp_post", "mlp_out", "resid_post")

Positions = Int[Tensor, "read"]
Where = tuple[Int[Tensor, "found"], Int[Tensor, "found"]]  # indices of cells, and a place in the row for each


@dataclass(frozen=True)
class UnpatchedLayer:
    """A block and its activations without a patch; queries and keys are rotated if the scheme rotates."""

    block: Block
    resid_pre: Float[Tensor, "batch pos d_model"]
    q: Float[Tensor, "batch pos head d_head"]
    k: Float[Tensor, "batch pos head d_head"]
    v: Float[Tensor, "batch pos head d_head"]
    z: Float[Tensor, "batch pos head d_head"]


class TransformerRerun:
    """The unpatched run of a batch, from which the logits of patched runs are computed."""

    def __init__(
        self,
        counter: Transformer,
        token_ids: TokenIds,
        position_ids: PositionIds,
        attention_mask: Bool[Tensor, "batch pos"] | None,
        site: str,
    ) -> None:
        self.counter, self.site = counter, site
        self.token_ids, self.position_ids, self.attention_mask = token_ids, position_ids, attention_mask
        names = [
            (hook_name("resid_pre", layer), *counter.qkv_hooks(layer), hook_name("z", layer))
            for layer in range(counter.cfg.n_layers)
        ]
        self.unpatched, self.cache = run_and_cache(counter, token_ids, position_ids, attention_mask, sum(names, ()))
        self.layers = [
            UnpatchedLayer(block, *(self.cache[name] for name in of_layer))
            for block, of_layer in zip(counter.blocks, names, strict=True)
            if isinstance(block, Block)
        ]

    def logits(self, layer: int | None, cells: PatchCells, donor: Mapping[str, Tensor], reads: Positions) -> CellLogits:
        """The logits at the positions `reads` for each cell, with activations of the donor."""
        name = Site(self.site, layer).hook
        edit = _edit_pattern if self.site == "pattern" else PatchCells.edit
        with brief_hooks(self.counter, {name: edit(cells, donor[name])}):
            into, resid = self._patch(layer, cells)
            if cells.pos is None:
                return self._run_from(into, 0, resid, reads).unflatten(0, (cells.count, -1))
            if into == len(self.layers):
                return _put(self.unpatched[:, reads], _find(cells.pos, reads), self.counter.read_out(resid))
            first = cells.first(self.counter.cfg.causal)
            n_before = int((reads < first).sum())
            answers = self._spread(into, cells, resid, first, reads[n_before:]).unflatten(0, (cells.count, -1))
        if n_before == 0:
            return answers
        return torch.cat([self.unpatched[:, reads[:n_before]].expand(cells.count, -1, -1, -1), answers], 2)

    def _patch(self, layer: int | None, cells: PatchCells) -> tuple[int, Stream]:
        """The stream at the cells just after the patch, and the layer that it enters.

        If one position of a layer's input, keys or values is patched, the stream is still unpatched here: the hook
        fires when the layer reads it.
        """
        if layer is None:
            return 0, self.counter.embed_tokens(cells.take(self.token_ids), cells.take(self.position_ids))
        own = self.layers[layer]
        resid, block = cells.take(own.resid_pre), own.block
        if self.site in BEHIND_ATTENTION:
            return layer + 1, block.finish(resid, cells.take(own.z))
        if cells.pos is None:  # the hook needs whole rows, also at positions that are not read
            mask = self.counter.visible_keys(self.position_ids, None, self.attention_mask, cells.count)
            return layer + 1, block(resid, self.counter.rotation_at(self.position_ids, cells.count), mask)
        if self.site in AT_ONE_QUERY:
            mask = self.counter.visible_keys(self.position_ids, cells.pos, self.attention_mask)
            resid, q, _, _ = block.read(resid, self.counter.rotation_at(cells.take(self.position_ids)))
            return layer + 1, block.finish(resid, block.attn.attend(q, own.k, own.v, mask))
        return layer, resid

    def _spread(
        self, layer: int, cells: PatchCells, resid: Float[Tensor, "batch cell d_model"], first: int, reads: Positions
    ) -> Float[Tensor, "row read d_vocab"]:
        """The logits if the stream enters the layer with a new value at one position per cell."""
        assert cells.pos is not None
        counter, own, n_pos = self.counter, self.layers[layer], self.position_ids.shape[1]
        resid, q, k, v = own.block.read(resid, counter.rotation_at(cells.take(self.position_ids)))
        is_last = layer == len(self.layers) - 1
        at = reads if is_last else torch.arange(first, n_pos, device=reads.device)
        in_row, among_queries = (torch.arange(cells.count, device=reads.device), cells.pos), _find(cells.pos, at)
        k, v = (_put(rows, in_row, new).flatten(0, 1) for rows, new in ((own.k, k), (own.v, v)))
        resid, q = (
            _put(rows[:, at], among_queries, new).flatten(0, 1) for rows, new in ((own.resid_pre, resid), (own.q, q))
        )
        mask = counter.visible_keys(self.position_ids, at, self.attention_mask, cells.count)
        resid = own.block.finish(resid, own.block.attn.attend(q, k, v, mask))
        return counter.read_out(resid) if is_last else self._run_from(layer + 1, first, resid, reads)

    def _run_from(
        self, layer: int, first: int, resid: Float[Tensor, "row later d_model"], reads: Positions
    ) -> Float[Tensor, "row read d_vocab"]:
        return self.counter.run_from(layer, first, resid, self.position_ids, self.cache, self.attention_mask, reads)


def _edit_pattern(cells: PatchCells, donor: Float[Tensor, "batch head query key"]) -> Callable[..., Tensor]:
    """`PatchCells.edit` for attention weights, which have heads before positions."""
    edit = cells.edit(donor.transpose(1, 2))
    return lambda pattern, hook: edit(pattern.transpose(1, 2)).transpose(1, 2)


def _find(pos: Int[Tensor, "cell"], places: Int[Tensor, "place"]) -> Where:
    """The indices of the cells whose position is among the places, and the index of that place for each."""
    cell, place = (pos[:, None] == places).nonzero(as_tuple=True)
    return cell, place


def _put(
    rows: Float[Tensor, "batch place ..."], where: Where, new: Float[Tensor, "batch cell ..."]
) -> Float[Tensor, "cell batch place ..."]:
    """A copy of the rows per cell, with the cell's new value at the place in `where`."""
    copies = rows.expand(new.shape[1], *rows.shape).clone()
    cell, place = where
    copies[cell, :, place] = new[:, cell].transpose(0, 1)
    return copies
