"""Brief hooks: they do what TransformerLens' do, and leave as much behind as there was before."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models import TransformerConfig, build_counter, hook_name
from models.transformer import Transformer
from probes.patching.brief_hooks import brief_hooks, run_and_cache

NAMES = [hook_name("z", 0), hook_name("pattern", 1), "hook_embed"]


def inputs() -> tuple[Transformer, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    counter = build_counter(TransformerConfig(13, n_layers=2, d_model=16, init_std=0.3), generator).eval()
    return counter, torch.randint(0, 13, (2, 6), generator=generator), torch.arange(6).expand(2, -1)


def test_what_is_kept_is_what_a_cache_holds() -> None:
    counter, token_ids, position_ids = inputs()
    logits, kept = run_and_cache(counter, token_ids, position_ids, None, NAMES)
    expected, cache = counter.run_with_cache(token_ids, position_ids, names_filter=NAMES)
    assert torch.equal(logits, expected)
    assert kept.keys() == set(NAMES)
    assert all(torch.equal(kept[name], cache[name]) for name in NAMES)
    assert not any(point.fwd_hooks for point in counter.hook_points())


@pytest.mark.parametrize("fails", [False, True])
def test_only_the_brief_hooks_are_taken_away(fails: bool) -> None:
    counter, token_ids, position_ids = inputs()
    plain, calls = counter(token_ids, position_ids), []
    counter.add_hook(NAMES[0], lambda z, hook: calls.append("other"))

    def edit(z: Tensor, hook: Any) -> Tensor:
        if fails:
            raise RuntimeError("in the middle")
        return z * 0

    if fails:
        with pytest.raises(RuntimeError, match="in the middle"), brief_hooks(counter, {NAMES[0]: edit}):
            counter(token_ids, position_ids)
    else:
        with brief_hooks(counter, {NAMES[0]: edit}):
            assert (counter(token_ids, position_ids) - plain).abs().max() > 1e-3
    assert torch.equal(counter(token_ids, position_ids), plain)
    assert calls == ["other", "other"]
    counter.reset_hooks()
    assert not any(point.fwd_hooks or point._forward_hooks for point in counter.hook_points())
