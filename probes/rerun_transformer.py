"""Patched runs of a transformer, taken up at the patch, many of them at a time.

A patch is a hook on the counter's own blocks, and only what it can change is computed again. Until the next attention a
change stays at the position of its cell, so that of a block's steps the first and the last run at these positions
alone. Attention carries it to every later position (without a causal mask to all): from there on the counter runs whole
rows, with the unpatched keys and values of the positions before.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from models.counter import PositionIds, TokenIds
from models.hooks import hook_name
from models.transformer import Block, Stream, Transformer
from probes.patching_cells import Cells
from probes.sites import Site

AT_ONE_QUERY = ("q", "rot_q", "pattern")  # read by the attention of their own position alone
BEHIND_ATTENTION = ("z", "attn_out", "resid_mid", "mlp_post", "mlp_out", "resid_post")

CellLogits = Float[Tensor, "cell batch read d_vocab"]


class TransformerRerun:
    """The unpatched run of a batch, and the logits that patches of it give."""

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
        self.blocks = [block for block in counter.blocks if isinstance(block, Block)]
        names = [
            name
            for layer in range(len(self.blocks))
            for name in (hook_name("resid_pre", layer), *counter.qkv_hooks(layer), hook_name("z", layer))
        ]
        self.unpatched, self.cache = counter.run_with_cache(token_ids, position_ids, attention_mask, names_filter=names)

    def logits(
        self, layer: int | None, cells: Cells, donor: Mapping[str, Tensor] | ActivationCache, reads: Int[Tensor, "read"]
    ) -> CellLogits:
        """What the counter answers at the positions that are read, for each of the cells."""
        name = Site(self.site, layer).hook
        edit = _edit_pattern if self.site == "pattern" else Cells.edit
        with self.counter.hooks(fwd_hooks=[(name, edit(cells, donor[name]))]):
            into, resid = self._patch(layer, cells)
            if cells.pos is None:
                answers = self._run_from(into, 0, resid, reads)
                return answers.unflatten(0, (cells.count, -1))
            if into == len(self.blocks):
                return _put(self.unpatched[:, reads], reads, cells.pos, self.counter.read_out(resid))
            return self._spread(into, cells, resid, reads)

    def _patch(self, layer: int | None, cells: Cells) -> tuple[int, Stream]:
        """The stream in the cells next to the patch, and the layer that it enters.

        Where the patch is in a layer's input, keys or values, this is still the unpatched one: the hook fires there.
        """
        if layer is None:
            return 0, self.counter.embed_tokens(cells.take(self.token_ids), cells.take(self.position_ids))
        resid, block = cells.take(self.cache[hook_name("resid_pre", layer)]), self.blocks[layer]
        if self.site in BEHIND_ATTENTION:
            return layer + 1, block.finish(resid, cells.take(self.cache[hook_name("z", layer)]))
        if self.site in AT_ONE_QUERY and cells.pos is not None:
            _, k, v = (self.cache[name] for name in self.counter.qkv_hooks(layer))
            mask = self.counter.visible_keys(k.shape[1], cells.pos, self.attention_mask)
            resid, q, _, _ = block.read(resid, self.counter.rotation_at(cells.take(self.position_ids)))
            return layer + 1, block.finish(resid, block.attn.attend(q, k, v, mask))
        return layer, resid

    def _spread(
        self, layer: int, cells: Cells, resid: Float[Tensor, "batch cell d_model"], reads: Int[Tensor, "read"]
    ) -> CellLogits:
        """Logits from a stream that enters the layer with another value at one position per cell."""
        assert cells.pos is not None
        counter, block, n_pos = self.counter, self.blocks[layer], self.position_ids.shape[1]
        first = cells.first(counter.cfg.causal)
        everywhere = torch.arange(n_pos, device=reads.device)
        is_last = layer == len(self.blocks) - 1
        changed = reads[reads >= first]
        at = changed if is_last else everywhere[first:]
        resid, q, k, v = block.read(resid, counter.rotation_at(cells.take(self.position_ids)))
        names = (hook_name("resid_pre", layer), *counter.qkv_hooks(layer))
        places = (at, at, everywhere, everywhere)
        resid, q, k, v = (
            _put(self.cache[name][:, place], place, cells.pos, new).flatten(0, 1)
            for name, place, new in zip(names, places, (resid, q, k, v), strict=True)
        )
        padding = None if self.attention_mask is None else self.attention_mask.repeat(cells.count, 1)
        resid = block.finish(resid, block.attn.attend(q, k, v, counter.visible_keys(n_pos, at, padding)))
        answers = counter.read_out(resid) if is_last else self._run_from(layer + 1, first, resid, changed)
        before = self.unpatched[:, reads[reads < first]].expand(cells.count, -1, -1, -1)
        return torch.cat([before, answers.unflatten(0, (cells.count, -1))], 2)

    def _run_from(
        self, layer: int, first: int, resid: Float[Tensor, "row later d_model"], reads: Int[Tensor, "read"]
    ) -> Float[Tensor, "row read d_vocab"]:
        return self.counter.run_from(layer, first, resid, self.position_ids, self.cache, self.attention_mask, reads)


def _edit_pattern(cells: Cells, donor: Float[Tensor, "batch head query key"]) -> Callable[..., Tensor]:
    """`Cells.edit` for attention weights, which have heads before positions."""
    edit = cells.edit(donor.transpose(1, 2))
    return lambda pattern, hook: edit(pattern.transpose(1, 2)).transpose(1, 2)


def _put(
    rows: Float[Tensor, "batch place ..."],
    places: Int[Tensor, "place"],
    pos: Int[Tensor, "cell"],
    new: Float[Tensor, "batch cell ..."],
) -> Float[Tensor, "cell batch place ..."]:
    """The rows once for each cell, with the cell's new value where its position is among the places."""
    copies = rows.expand(len(pos), *rows.shape).clone()
    cell, place = (pos[:, None] == places).nonzero(as_tuple=True)
    copies[cell, :, place] = new[:, cell].transpose(0, 1)
    return copies
