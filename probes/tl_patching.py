"""Activation patching under TransformerLens' names, with its arguments and its tensors, many patches at a time.

    from probes.tl_patching import get_act_patch_resid_pre  # was: from transformer_lens.patching import ...
    get_act_patch_resid_pre(counter, corrupted_tokens, clean_cache, metric, position_ids=position_ids)

Every function returns what its namesake in `transformer_lens.patching` does on the same counter, one tensor with a
value for each patch; `resid_post`, `state` and `state_step` have no namesake there. Position ids are those of the
corrupted rows. `probes.patching` has the same sweeps with named metrics and a typed result.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens import ActivationCache

from models.counter import Counter, PositionIds, TokenIds
from models.errors import CountLensError
from probes.patching import check_unhooked, rerun_of, sweep
from probes.patching_cells import axes_of, grid_axes, source_hook
from probes.patching_metrics import Metric, of_function
from probes.rows import evaluating


@dataclass(frozen=True)
class ActPatch:
    """Patches a site everywhere when it is called; its tensor has these axes, in this order."""

    site: str
    axes: tuple[str, ...]

    def __call__(
        self,
        counter: Counter,
        corrupted_tokens: TokenIds,
        clean_cache: Mapping[str, Tensor] | ActivationCache,
        patching_metric: Metric,
        *,
        position_ids: PositionIds,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "..."]:
        """The metric for each patch."""
        n_batch, n_pos = corrupted_tokens.shape
        ordered = tuple(axis for axis in axes_of(self.site) if axis in self.axes)
        grid = grid_axes(counter, self.site, n_pos, ordered, {})
        donor = {name: clean_cache[name] for name in (source_hook(self.site, layer) for layer in grid["layer"])}
        for name, tensor in donor.items():
            _check_donor(name, tensor, n_batch, n_pos, self.site)
        check_unhooked(counter)
        with evaluating(counter):
            rerun = rerun_of(counter, corrupted_tokens, position_ids, attention_mask, self.site)
            score = of_function(patching_metric, torch.arange(n_pos, device=corrupted_tokens.device))
            values = sweep(rerun, grid, donor, score, counter.cfg.causal)
        return values.mean(-1).permute(*(ordered.index(axis) for axis in self.axes))


def _check_donor(name: str, donor: Tensor, n_batch: int, n_pos: int, site: str) -> None:
    given = donor.shape[0], donor.shape[2 if site == "pattern" else 1]
    if given != (n_batch, n_pos):
        raise CountLensError(
            f"{name} of the clean cache has {given[0]} rows of {given[1]} positions, the corrupted tokens {n_batch} of "
            f"{n_pos}: a patch needs pairs of equal length"
        )


LAYER_POS, LAYER_POS_HEAD, LAYER_HEAD = ("layer", "pos"), ("layer", "pos", "head"), ("layer", "head")

get_act_patch_resid_pre = ActPatch("resid_pre", LAYER_POS)
get_act_patch_resid_mid = ActPatch("resid_mid", LAYER_POS)
get_act_patch_resid_post = ActPatch("resid_post", LAYER_POS)
get_act_patch_attn_out = ActPatch("attn_out", LAYER_POS)
get_act_patch_mlp_out = ActPatch("mlp_out", LAYER_POS)
get_act_patch_attn_head_out_by_pos = ActPatch("z", LAYER_POS_HEAD)
get_act_patch_attn_head_q_by_pos = ActPatch("q", LAYER_POS_HEAD)
get_act_patch_attn_head_k_by_pos = ActPatch("k", LAYER_POS_HEAD)
get_act_patch_attn_head_v_by_pos = ActPatch("v", LAYER_POS_HEAD)
get_act_patch_attn_head_pattern_by_pos = ActPatch("pattern", ("layer", "head", "pos"))
get_act_patch_attn_head_pattern_dest_src_pos = ActPatch("pattern", ("layer", "head", "pos", "src"))
get_act_patch_attn_head_out_all_pos = ActPatch("z", LAYER_HEAD)
get_act_patch_attn_head_q_all_pos = ActPatch("q", LAYER_HEAD)
get_act_patch_attn_head_k_all_pos = ActPatch("k", LAYER_HEAD)
get_act_patch_attn_head_v_all_pos = ActPatch("v", LAYER_HEAD)
get_act_patch_attn_head_pattern_all_pos = ActPatch("pattern", LAYER_HEAD)
get_act_patch_state = ActPatch("state", LAYER_POS)
get_act_patch_state_step = ActPatch("state_step", LAYER_POS)
