"""Activation patching under TransformerLens' names, with its arguments and its tensors, many patches at a time.

    from probes.tl_patching import get_act_patch_resid_pre  # was: from transformer_lens.patching import ...
    get_act_patch_resid_pre(counter, corrupted_tokens, clean_cache, metric, position_ids=position_ids)

Every function returns what its namesake in `transformer_lens.patching` does on the same counter, one tensor with a
value for each patch; `resid_post`, `state` and `state_step` have no namesake there. Position ids are those of the
corrupted rows. `probes.patching` has the same sweeps with named metrics and a typed result.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from models.counter import Counter, PositionIds, TokenIds
from models.errors import CountLensError
from probes.patching import check_unhooked, rerun_of, sweep
from probes.patching_cells import axes_of, grid_axes, source_hook
from probes.patching_metrics import Metric, of_function
from probes.rows import evaluating


class ActPatch(Protocol):
    """How all of these are called."""

    def __call__(
        self,
        counter: Counter,
        corrupted_tokens: TokenIds,
        clean_cache: Mapping[str, Tensor],
        patching_metric: Metric,
        *,
        position_ids: PositionIds,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
    ) -> Tensor:
        """The metric for each patch."""


def _act_patch(site: str, axes: tuple[str, ...]) -> ActPatch:
    """The function that patches a site; its tensor has these axes, in this order."""
    ordered = tuple(axis for axis in axes_of(site) if axis in axes)

    def get_act_patch(
        counter: Counter,
        corrupted_tokens: TokenIds,
        clean_cache: Mapping[str, Tensor],
        patching_metric: Metric,
        *,
        position_ids: PositionIds,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "..."]:
        n_batch, n_pos = corrupted_tokens.shape
        grid = grid_axes(counter, site, n_pos, ordered, {})
        donor = {}
        for name in (source_hook(site, layer) for layer in grid.get("layer", (None,))):
            donor[name] = clean_cache[name]
            _check_donor(name, donor[name], n_batch, n_pos, site)
        check_unhooked(counter)
        with evaluating(counter):
            rerun = rerun_of(counter, corrupted_tokens, position_ids, attention_mask, site)
            score = of_function(patching_metric, torch.arange(n_pos, device=corrupted_tokens.device))
            values = sweep(rerun, grid, donor, score, counter.cfg.causal)
        return values.mean(-1).permute(*(ordered.index(axis) for axis in axes)).clone()

    get_act_patch.__doc__ = f"The metric for each patch of {site}, [{', '.join(axes)}]."
    return get_act_patch


def _check_donor(name: str, donor: Tensor, n_batch: int, n_pos: int, site: str) -> None:
    given = donor.shape[0], donor.shape[2 if site == "pattern" else 1]
    if given != (n_batch, n_pos):
        raise CountLensError(
            f"{name} of the clean cache has {given[0]} rows of {given[1]} positions, the corrupted tokens {n_batch} of "
            f"{n_pos}: a patch needs pairs of equal length"
        )


LAYER_POS, LAYER_POS_HEAD, LAYER_HEAD = ("layer", "pos"), ("layer", "pos", "head"), ("layer", "head")

get_act_patch_resid_pre = _act_patch("resid_pre", LAYER_POS)
get_act_patch_resid_mid = _act_patch("resid_mid", LAYER_POS)
get_act_patch_resid_post = _act_patch("resid_post", LAYER_POS)
get_act_patch_attn_out = _act_patch("attn_out", LAYER_POS)
get_act_patch_mlp_out = _act_patch("mlp_out", LAYER_POS)
get_act_patch_attn_head_out_by_pos = _act_patch("z", LAYER_POS_HEAD)
get_act_patch_attn_head_q_by_pos = _act_patch("q", LAYER_POS_HEAD)
get_act_patch_attn_head_k_by_pos = _act_patch("k", LAYER_POS_HEAD)
get_act_patch_attn_head_v_by_pos = _act_patch("v", LAYER_POS_HEAD)
get_act_patch_attn_head_pattern_by_pos = _act_patch("pattern", ("layer", "head", "pos"))
get_act_patch_attn_head_pattern_dest_src_pos = _act_patch("pattern", ("layer", "head", "pos", "src"))
get_act_patch_attn_head_out_all_pos = _act_patch("z", LAYER_HEAD)
get_act_patch_attn_head_q_all_pos = _act_patch("q", LAYER_HEAD)
get_act_patch_attn_head_k_all_pos = _act_patch("k", LAYER_HEAD)
get_act_patch_attn_head_v_all_pos = _act_patch("v", LAYER_HEAD)
get_act_patch_attn_head_pattern_all_pos = _act_patch("pattern", LAYER_HEAD)
get_act_patch_state = _act_patch("state", LAYER_POS)
get_act_patch_state_step = _act_patch("state_step", LAYER_POS)
