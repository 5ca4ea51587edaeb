"""The first-order estimate is TransformerLens' own, exact where a counter is linear, and has its truth beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import EdgeAttributionConfig
from transformer_lens.tools.analysis.attribution_patching import attribution_patch as theirs

from models import FAMILIES, CountLensError, build_counter
from models.counter import Counter
from probes.attribution_patching import attribution_patch
from training.batches import Batch

N_TOKENS, N_POS = 13, 6


def lively(family: str = "transformer", **settings: object) -> Counter:
    generator = torch.Generator().manual_seed(3)
    counter = build_counter(FAMILIES[family].config(N_TOKENS, n_layers=2, d_model=16, **settings), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return counter.eval()


def pair(n_rows: int = 2) -> tuple[Batch, Batch]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(2):
        token_ids, label_ids = torch.randint(0, N_TOKENS, (2, n_rows, N_POS), generator=generator)
        position_ids = torch.arange(N_POS) + 5 * torch.arange(n_rows)[:, None]
        mask = torch.ones(n_rows, N_POS, dtype=torch.bool)
        batches.append(Batch(token_ids, position_ids, label_ids, mask, torch.ones(n_rows)))
    return batches[0], batches[1]


WEIGHTS = torch.randn(N_POS, N_TOKENS, generator=torch.Generator().manual_seed(1))


def metric(logits: Tensor) -> Tensor:
    return (logits * WEIGHTS).sum((1, 2)).mean()


@pytest.mark.parametrize(("site", "kind"), [("z", "attn_head_out"), ("mlp_out", "mlp_out"), ("embed", "embed")])
def test_estimates_are_those_of_transformer_lens(site: str, kind: str) -> None:
    counter = lively(position="ape")
    clean, corrupted = (replace(batch, position_ids=torch.arange(N_POS).expand(1, -1)) for batch in pair(1))
    found = attribution_patch(counter, clean, corrupted, site, metric)
    with counter.at_positions(corrupted.position_ids):
        scores = theirs(counter, clean.token_ids, corrupted.token_ids, metric, EdgeAttributionConfig()).node_scores
    nodes = {node: score for node, score in scores.items() if node.kind == kind}
    assert len(nodes) == found.estimate.size
    for node, score in nodes.items():
        place = tuple(at for at in (node.layer, node.position, node.head) if at is not None)
        assert found.estimate[place] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("family", ["transformer", "rnn", "lstm", "s4", "mamba", "rwkv6"])
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_a_small_patch_is_what_the_estimate_says(family: str, direction: str) -> None:
    """Where donor and receiver differ little, the first order is all there is."""
    counter = lively(family, **({"d_head": 8} if family == "rwkv6" else {})).double()
    clean, corrupted = pair()
    with torch.no_grad():
        counter.embed.W_E.mul_(1e-4).add_(torch.linspace(-1, 2, 16) ** 2)  # all tokens look nearly the same
    for site in ("resid_pre", "resid_post", "state" if family != "transformer" else "v"):
        found = attribution_patch(counter, clean, corrupted, site, metric, direction=direction)
        assert np.abs(found.change).max() > 1e-9
        np.testing.assert_allclose(found.estimate, found.change, atol=2e-2 * np.abs(found.change).max())
        assert found.correlation > 0.999


@pytest.mark.parametrize("axes", [("layer", "head"), ("layer", "pos", "head", "src"), None])
def test_estimates_add_up_over_what_a_cell_replaces(axes: tuple[str, ...] | None) -> None:
    counter = lively(position="ape")
    found = attribution_patch(counter, *pair(), "pattern", "probability", axes=axes)
    assert found.estimate.shape == found.truth.values.shape
    whole = attribution_patch(counter, *pair(), "pattern", "probability", axes=["layer"])
    np.testing.assert_allclose(found.estimate.reshape(2, -1).sum(1), whole.estimate, atol=1e-6)
    assert found.to_frame().shape[0] == found.estimate.size
    assert "correlates" in found.verdict.sentence


@pytest.mark.parametrize(
    ("site", "name", "message"), [("z", "accuracy", "no gradient"), ("state_step", "kl", "take state")]
)
def test_what_has_no_gradient_is_refused(site: str, name: str, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        attribution_patch(lively(), *pair(), site, name)


def test_neither_hooks_nor_gradients_stay() -> None:
    counter = lively().train()
    attribution_patch(counter, *pair(), "z", "probability")
    assert counter.training
    assert all(parameter.grad is None for parameter in counter.parameters())
    assert not any(point.fwd_hooks or point.bwd_hooks for point in counter.hook_dict.values())
