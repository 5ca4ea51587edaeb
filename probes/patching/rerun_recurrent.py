"""Patched runs of a recurrent counter: many at a time, each started at the patched layer.

Each cell is a copy of the rows of the batch. Layers below the patched one are not run again, but all positions are. A
layer whose mixer is not patched runs in its fast form; one with a patched state runs step by step. Hooks are on the
counter only while the patched layer runs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from models.hooks import hook_name
from models.recurrent import Recurrent
from models.shapes import PositionIds, TokenIds
from probes.patching.metrics import CellLogits
from probes.patching.patch_cells import PatchCells
from probes.sites import Site


class RecurrentRerun:
    """The unpatched run of a batch, from which the logits of patched runs are computed."""

    def __init__(self, counter: Recurrent, token_ids: TokenIds, position_ids: PositionIds, site: str) -> None:
        self.counter, self.site = counter, site
        names = ["hook_embed", *(hook_name("resid_pre", layer) for layer in range(counter.cfg.n_layers))]
        self.unpatched, self.cache = counter.run_with_cache(token_ids, position_ids, names_filter=names)

    def logits(
        self, layer: int | None, cells: PatchCells, donor: Mapping[str, Tensor], reads: Int[Tensor, "read"]
    ) -> CellLogits:
        """The logits at the positions `reads` for each cell, with activations of the donor."""
        if layer is None:  # the embedding itself
            embedded = self.cache["hook_embed"].expand(cells.count, -1, -1, -1).flatten(0, 1)
            resid = self.counter.ln_embed(_edit_rows(donor["hook_embed"], cells)(embedded))
            return self._read_out(self._run_blocks(resid, 0), cells.count, reads)
        name = Site(self.site, layer).hook
        resid = self.cache[hook_name("resid_pre", layer)].expand(cells.count, -1, -1, -1).flatten(0, 1)
        if self.site == "state_step":
            edit = _edit_steps(donor[hook_name("state", layer)], cells)
        else:
            edit = _edit_rows(donor[name], cells)
        with self.counter.hooks(fwd_hooks=[(name, edit)]):
            resid = self.counter.blocks[layer](resid)
        return self._read_out(self._run_blocks(resid, layer + 1), cells.count, reads)

    def _run_blocks(self, resid: Float[Tensor, "rows pos d_model"], first: int) -> Float[Tensor, "rows pos d_model"]:
        """The stream after the last block, from the stream that enters block `first`."""
        for block in self.counter.blocks[first:]:
            resid = block(resid)
        return resid

    def _read_out(self, resid: Float[Tensor, "rows pos d_model"], count: int, reads: Int[Tensor, "read"]) -> CellLogits:
        """The logits from the stream after the last block."""
        logits = self.counter.unembed(self.counter.ln_final(resid[:, reads]))
        return rearrange(logits, "(cell batch) read d_vocab -> cell batch read d_vocab", cell=count)


def _edit_rows(donor: Tensor, cells: PatchCells) -> Callable[..., Tensor]:
    """A hook that puts the donor's values at each cell's position; the rows of one cell are consecutive."""

    def edit(value: Tensor, hook: Any = None) -> Tensor:
        rows = value.unflatten(0, (cells.count, -1)).clone()
        if cells.pos is None:
            rows[:] = donor
        else:
            rows[torch.arange(cells.count, device=value.device), :, cells.pos] = donor.transpose(0, 1)[cells.pos]
        return rows.flatten(0, 1)

    return edit


def _edit_steps(donor: Tensor, cells: PatchCells) -> Callable[..., Tensor | None]:
    """A hook that puts the donor's state into the cells whose position this step is."""

    def edit(state: Tensor, hook: Any) -> Tensor | None:
        pos = hook.ctx["pos"]
        here = torch.ones(cells.count, dtype=torch.bool) if cells.pos is None else cells.pos == pos
        if not here.any():
            return None
        rows = state.unflatten(0, (cells.count, -1)).clone()
        rows[here] = donor[:, pos]
        return rows.flatten(0, 1)

    return edit
