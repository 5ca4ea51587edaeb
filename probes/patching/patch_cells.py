"""The cells of a patching grid. A cell is one patch: a site at one layer, and one or all positions, heads and sources.

axis    of            a patch without this axis replaces
layer   every site but embed and pos_embed
pos     every site                                   all positions at once
head    q, k, v, rot_q, rot_k, z, pattern            all heads at once
src     pattern                                      the whole row of weights of a query (`pos`)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.hooks import hook_name
from models.transformer import Transformer
from probes.sites import GLOBAL_KINDS, HEAD_KINDS, Site, kinds_of

AXES = ("layer", "pos", "head", "src")  # in the order in which a grid has them
TOKENS_AT_ONCE = 2048  # positions that are recomputed at once, so that their tensors fit a processor's cache


def patchable_sites(counter: Counter) -> list[str]:
    """The sites that can be patched in a counter: those of `probes.sites`, and `pattern` or `state_step`.

    Patching `state` changes only what is read at its own position; patching `state_step` also changes all later states.
    """
    return kinds_of(counter) + (["pattern"] if isinstance(counter, Transformer) else ["state_step"])


def source_hook(site: str, layer: int | None) -> str:
    """The hook point of the donor's values. For `state_step` it is `state`, which has the state after each step."""
    return hook_name("state", layer) if site == "state_step" else Site(site, layer).hook


def axes_of(site: str) -> tuple[str, ...]:
    """All axes of a site.

    >>> axes_of("resid_pre"), axes_of("z"), axes_of("embed")
    (('layer', 'pos'), ('layer', 'pos', 'head'), ('pos',))
    """
    if site == "pattern":
        return AXES
    layer = () if site in GLOBAL_KINDS else ("layer",)
    return (*layer, "pos", "head") if site in HEAD_KINDS else (*layer, "pos")


def grid_axes(
    counter: Counter, site: str, n_pos: int, axes: Sequence[str] | None, only: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """The coordinates of the grid on each axis: all, or those in `only`."""
    if site not in patchable_sites(counter):
        raise unknown("site", site, patchable_sites(counter))
    own = axes_of(site)
    # A pattern has many sources, so that axis is not swept by default.
    swept = tuple(axis for axis in own if axis != "src") if axes is None else tuple(axes)
    for axis in (*swept, *only):
        if axis not in own:
            raise unknown(f"axis of {site}", axis, own)
    if "layer" in own and "layer" not in swept:
        raise CountLensError(f"a patch of {site} is at one layer: got axes {swept}, give 'layer' with them")
    sizes = {"layer": counter.cfg.n_layers, "pos": n_pos, "src": n_pos, "head": getattr(counter.cfg, "n_heads", 0)}
    return {axis: _coordinates(axis, sizes[axis], only.get(axis)) for axis in AXES if axis in swept}


def _coordinates(axis: str, size: int, chosen: Sequence[int] | None) -> tuple[int, ...]:
    """The chosen coordinates counted from the start, or all; refuses those outside the axis."""
    for coordinate in chosen or ():
        if not -size <= coordinate < size:
            raise CountLensError(f"{axis} {coordinate} is outside 0..{size - 1}: choose from these")
    return tuple(range(size)) if chosen is None else tuple(coordinate % size for coordinate in chosen)


@dataclass(frozen=True)
class PatchCells:
    """Patches of one layer that are run together. If an axis is None, each patch replaces all of it."""

    count: int
    pos: Int[Tensor, "cell"] | None
    head: Int[Tensor, "cell"] | None
    src: Int[Tensor, "cell"] | None

    def first(self, causal: bool) -> int:
        """The first position at which a patch can change anything."""
        return int(self.pos.min()) if causal and self.pos is not None else 0

    def take(self, rows: Shaped[Tensor, "batch pos ..."]) -> Shaped[Tensor, "..."]:
        """The values of the rows at the cells' positions: [batch, cell, ...].

        If the cells have no position, a copy of the whole rows per cell: [(cell batch), pos, ...]. Code that treats
        positions independently can take either.
        """
        return rows.expand(self.count, *rows.shape).flatten(0, 1) if self.pos is None else rows[:, self.pos]

    def edit(self, donor: Float[Tensor, "batch pos ..."]) -> Callable[..., Float[Tensor, "..."]]:
        """A hook that puts the donor's values into activations that have the axes of `take`, then head and source."""

        def put(own: Tensor, hook: Any = None) -> Tensor:
            new = self.take(donor)
            if self.head is None and self.src is None:
                return new
            # One head (and source) is the donor's, the others stay the receiver's.
            own = own.clone()
            cell = torch.arange(self.count, device=own.device)
            heads = slice(None) if self.head is None else self.head
            inner = (heads,) if self.src is None else (heads, self.src)
            if self.pos is None:
                by_cell, new = own.unflatten(0, (self.count, -1)), new.unflatten(0, (self.count, -1))
                by_cell[cell, :, :, *inner] = new[cell, :, :, *inner]
            else:
                own[:, cell, *inner] = new[:, cell, *inner]
            return own

        return put


def chunk_cells(
    axes: Mapping[str, Sequence[int]], batch: int, n_pos: int, causal: bool, device: torch.device
) -> Iterator[PatchCells]:
    """The cells of one layer in order of position, in chunks that recompute about TOKENS_AT_ONCE positions each."""
    names = [axis for axis in AXES[1:] if axis in axes]
    if not names:
        yield PatchCells(1, None, None, None)
        return
    product = torch.cartesian_prod(*(torch.tensor(axes[axis], device=device) for axis in names))
    every = dict(zip(names, product.reshape(len(product), -1).unbind(1), strict=True))
    start = 0
    while start < len(product):
        first = int(every["pos"][start:].min()) if causal and "pos" in every else 0
        size = max(1, TOKENS_AT_ONCE // (batch * (n_pos - first)))
        part = slice(start, min(start + size, len(product)))
        taken = {axis: index[part] for axis, index in every.items()}
        yield PatchCells(part.stop - part.start, taken.get("pos"), taken.get("head"), taken.get("src"))
        start = part.stop
