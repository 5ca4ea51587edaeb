"""Activation patching: a counter is run on one input with one activation replaced by that of another input.

*Denoising* puts activations of the clean run into the corrupted run, to see which restore the clean answer; *noising*
puts activations of the corrupted run into the clean run, to see which break it. A sweep patches every layer, position
and head of a site in turn. The sites and their axes are in `probes.patching.patch_cells`, the metrics in
`probes.patching.metrics`. The numbers are those of `transformer_lens.patching`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from models.counter import Counter, listening
from models.errors import CountLensError, unknown
from models.recurrent import Recurrent
from models.shapes import Logits
from models.transformer import Transformer
from probes.patching.brief_hooks import run_and_cache
from probes.patching.metrics import Metric, Scorer, make_scorer
from probes.patching.patch_cells import PatchCells, chunk_cells, grid_axes, source_hook
from probes.patching.rerun_recurrent import RecurrentRerun
from probes.patching.rerun_transformer import TransformerRerun
from probes.result import Result, Verdict
from training.batches import Batch
from training.evaluate import evaluating

Rerun: TypeAlias = TransformerRerun | RecurrentRerun
DIRECTIONS = ("denoise", "noise")
NOTICEABLE = 0.1  # share of the difference between the runs from which on a verdict names an effect
TOP = 3  # number of cells that a verdict names


@dataclass(frozen=True)
class PatchGrid(Result):
    """The metric for every patch of a site, and for the two runs without a patch."""

    site: str
    metric: str
    direction: str  # denoise or noise
    axes: dict[str, tuple[int, ...]]  # coordinates of by_row on those of layer, pos, head and src that it has
    by_row: Float[np.ndarray, "*axes row"]  # only one row if the metric is one number for all rows
    weights: Float[np.ndarray, "row"]  # how many drawn rows each stands for
    clean_by_row: Float[np.ndarray, "row"]  # the metric of the unpatched runs
    corrupted_by_row: Float[np.ndarray, "row"]

    @property
    def values(self) -> Float[np.ndarray, "*axes"]:
        """The metric of each patch, averaged over rows."""
        return self._mean(self.by_row)

    @property
    def clean(self) -> float:
        """The metric of the clean run."""
        return float(self._mean(self.clean_by_row))

    @property
    def corrupted(self) -> float:
        """The metric of the corrupted run."""
        return float(self._mean(self.corrupted_by_row))

    @property
    def effect(self) -> Float[np.ndarray, "*axes"]:
        """Each patch's change as a share of the difference between the runs, from 0 to 1; NaN if they are equal."""
        start, end = self._ends
        if np.isclose(start, end, rtol=1e-6, atol=1e-9):
            return np.full(self.values.shape, np.nan)
        return self.change / (end - start)

    @property
    def change(self) -> Float[np.ndarray, "*axes"]:
        """The change of the metric by each patch, from the unpatched value of the run that is patched."""
        return self.values - self._ends[0]

    @property
    def _ends(self) -> tuple[float, float]:
        """The metric of the run that is patched, and of the donor's run."""
        return (self.corrupted, self.clean) if self.direction == "denoise" else (self.clean, self.corrupted)

    @property
    def stderr(self) -> Float[np.ndarray, "*axes"]:
        """The standard error of each mean over rows; NaN if there is only one row."""
        share = self.weights / self.weights.sum()
        variance = (share * (self.by_row - self.values[..., None]) ** 2).sum(-1)
        independent = 1 / (share**2).sum()
        return np.sqrt(variance / (independent - 1)) if independent > 1 + 1e-9 else np.full(variance.shape, np.nan)

    @property
    def cell_names(self) -> list[str]:
        """The coordinates of each cell as text, such as `layer 1 pos 3`, in the order of `values.ravel()`."""
        cells = product(*self.axes.values())
        return [" ".join(f"{axis} {at}" for axis, at in zip(self.axes, cell, strict=True)) for cell in cells]

    @property
    def verdict(self) -> Verdict:
        gap = f"{self.metric} is {self.clean:.3g} clean and {self.corrupted:.3g} corrupted"
        if np.isnan(self.effect).any():
            return Verdict(f"There is nothing to patch: {gap}.", "a pair on which the two runs differ")
        does = "brings back" if self.direction == "denoise" else "takes away"
        if self.effect.max() < NOTICEABLE:
            return Verdict(
                f"No single patch of {self.site} {does} even {NOTICEABLE:.0%}; {gap}.",
                f"a cell whose patch moves {self.metric} by that much of the difference",
            )
        strongest = np.argsort(-self.effect, axis=None, kind="stable")[:TOP]
        named = ", ".join(f"{self.cell_names[cell]} ({self.effect.flat[cell]:.0%})" for cell in strongest)
        return Verdict(
            f"One patch of {self.site} {does} most at {named}; {gap}.",
            f"another cell whose patch moves {self.metric} further from one run's value to the other's",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per cell. Columns: site, the axes, value, stderr, effect."""
        cells = pd.DataFrame(product(*self.axes.values()), columns=list(self.axes))
        cells.insert(0, "site", self.site)
        return cells.assign(value=self.values.ravel(), stderr=self.stderr.ravel(), effect=self.effect.ravel())

    def _mean(self, by_row: Float[np.ndarray, "*axes row"]) -> Float[np.ndarray, "*axes"]:
        """The weighted mean over rows."""
        return np.asarray(by_row @ (self.weights / self.weights.sum()))


def activation_patch(
    counter: Counter,
    clean: Batch,
    corrupted: Batch,
    site: str = "resid_pre",
    metric: str | Metric = "logit_diff",
    *,
    direction: str = "denoise",
    axes: Sequence[str] | None = None,
    only: Mapping[str, Sequence[int]] | None = None,
    at: Sequence[int] | None = None,
) -> PatchGrid:
    """The metric for every patch of a site, one layer, position and head at a time.

    Row i of one batch is the partner of row i of the other; each is run at its own position ids. `axes` are those of
    the grid: `("layer", "head")` patches a head at all positions at once. `only` restricts an axis to some coordinates,
    such as `{"layer": [1]}`. `at` are the positions whose logits the metric gets, by default all.
    """
    _check_pair(clean, corrupted)
    grid = grid_axes(counter, site, clean.token_ids.shape[1], axes, only or {})
    if direction not in DIRECTIONS:
        raise unknown("direction", direction, DIRECTIONS)
    donor, receiver = (clean, corrupted) if direction == "denoise" else (corrupted, clean)
    _check_unhooked(counter)
    with _eval_mode(counter):
        names = [source_hook(site, layer) for layer in grid.get("layer", (None,))]
        donor_logits, cache = _run(counter, donor, names)
        rerun = _rerun(counter, receiver, site)
        both = {direction == "denoise": donor_logits, direction == "noise": rerun.unpatched}
        score = make_scorer(metric, clean, corrupted, both[True], at)
        unpatched = {is_clean: score(logits[None, :, score.reads])[0] for is_clean, logits in both.items()}
        by_row = _sweep(rerun, grid, cache, score, counter.cfg.causal)
    n_rows = by_row.shape[-1]
    return PatchGrid(
        site=site,
        metric=score.name,
        direction=direction,
        axes=grid,
        by_row=by_row.double().cpu().numpy(),
        weights=clean.weights.double().cpu().numpy() if n_rows == len(clean.weights) else np.ones(n_rows),
        clean_by_row=unpatched[True].double().cpu().numpy(),
        corrupted_by_row=unpatched[False].double().cpu().numpy(),
    )


def patched_logits(
    counter: Counter,
    donor: Batch,
    receiver: Batch,
    site: str,
    layer: int | None = None,
    pos: int | None = None,
    head: int | None = None,
) -> Logits:
    """The receiver's logits with one of its activations replaced by the donor's."""
    _check_pair(donor, receiver)
    chosen = {"layer": layer, "pos": pos, "head": head}
    only = {axis: [index] for axis, index in chosen.items() if index is not None}
    n_pos = receiver.token_ids.shape[1]
    grid = grid_axes(counter, site, n_pos, list(only), only)
    _check_unhooked(counter)
    with _eval_mode(counter):
        _, cache = _run(counter, donor, [source_hook(site, layer)])
        rerun = _rerun(counter, receiver, site)
        index = {axis: torch.tensor(place, device=counter.device) for axis, place in grid.items()}
        cells = PatchCells(1, index.get("pos"), index.get("head"), None)
        return rerun.logits(layer, cells, cache, torch.arange(n_pos, device=counter.device))[0]


def _sweep(
    rerun: Rerun,
    grid: Mapping[str, Sequence[int]],
    donor: Mapping[str, Tensor],
    score: Scorer,
    causal: bool,
) -> Float[Tensor, "*axes row"]:
    """The metric of every cell of a grid, by row."""
    n_batch, n_pos = rerun.unpatched.shape[:2]
    values = []
    for layer in grid.get("layer", (None,)):
        for cells in chunk_cells(grid, n_batch, n_pos, causal, score.reads.device):
            values.append(score(rerun.logits(layer, cells, donor, score.reads)))
    return torch.cat(values).reshape(*(len(places) for places in grid.values()), -1)


def _check_pair(clean: Batch, corrupted: Batch) -> None:
    """Refuses batches with different numbers of rows or of positions."""
    one, other = tuple(clean.token_ids.shape), tuple(corrupted.token_ids.shape)
    if one[1] != other[1]:
        raise CountLensError(
            f"clean rows have {one[1]} positions and corrupted ones {other[1]}: patching needs rows of equal length, "
            "position by position; pad or cut one"
        )
    if one != other:
        raise CountLensError(f"{one[0]} clean rows and {other[0]} corrupted ones: give a partner to each row")


def _check_unhooked(counter: Counter) -> None:
    """Refuses a counter that has hooks already: a sweep would skip some of them."""
    hooked = [name for name, point in counter.hook_dict.items() if listening(point)]
    if hooked:
        raise CountLensError(f"there are hooks on this counter, at {', '.join(hooked)}: counter.reset_hooks() first")


def _eval_mode(counter: Counter) -> AbstractContextManager[Any]:
    """A context with eval mode and no gradients. It does not set eval mode if it is on already, which would be slow."""
    return evaluating(counter) if counter.training else torch.inference_mode()


def _run(counter: Counter, batch: Batch, names: Sequence[str]) -> tuple[Logits, dict[str, Tensor]]:
    """The logits of a batch and its activations at these hook points."""
    return run_and_cache(counter, batch.token_ids, batch.position_ids, _padding(counter, batch), names)


def _rerun(counter: Counter, batch: Batch, site: str) -> Rerun:
    """The unpatched run of a batch, from which patched runs of this site start."""
    if isinstance(counter, Recurrent):
        return RecurrentRerun(counter, batch.token_ids, batch.position_ids, site)
    assert isinstance(counter, Transformer)
    return TransformerRerun(counter, batch.token_ids, batch.position_ids, _padding(counter, batch), site)


def _padding(counter: Counter, batch: Batch) -> Bool[Tensor, "batch pos"] | None:
    """The attention mask, which is False at padding; None for causal counters, which never see padding."""
    return None if counter.cfg.causal else batch.attention_mask
