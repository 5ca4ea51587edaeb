"""Paths are those of TransformerLens' direct path patching, and add up where nothing but one reader reads."""

from typing import Any

import numpy as np
import pytest
import torch
import transformer_lens.patching
from torch import Tensor

from models import CountLensError, TransformerConfig, build_counter, hook_name
from models.config import RNNConfig
from models.transformer import Transformer
from probes.patching import activation_patch
from probes.path_patching import path_patch
from probes.result import NotApplicable
from probes.sites import Site
from training.batches import Batch

N_TOKENS, N_ROWS, N_POS = 13, 2, 6
WEIGHTS = torch.randn(N_POS, N_TOKENS, generator=torch.Generator().manual_seed(1))


def lively(position: str = "ape", **settings: Any) -> Transformer:
    generator = torch.Generator().manual_seed(3)
    config = TransformerConfig(N_TOKENS, position, d_model=16, **({"n_layers": 3} | settings))
    counter = build_counter(config, generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return counter.eval()


def pair() -> tuple[Batch, Batch]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(2):
        token_ids, label_ids = torch.randint(0, N_TOKENS, (2, N_ROWS, N_POS), generator=generator)
        position_ids = torch.arange(N_POS).expand(N_ROWS, -1)
        mask = torch.ones(N_ROWS, N_POS, dtype=torch.bool)
        batches.append(Batch(token_ids, position_ids, label_ids, mask, torch.ones(N_ROWS)))
    return batches[0], batches[1]


def metric(logits: Tensor) -> Tensor:
    return (logits * WEIGHTS).sum((1, 2)).mean()


class Renamed:
    """A counter whose split inputs are where TransformerLens 4.x looks for them, in the attention."""

    def __init__(self, counter: Transformer) -> None:
        self.counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.counter, name)

    def run_with_hooks(self, token_ids: Tensor, fwd_hooks: list[tuple[str, Any]]) -> Tensor:
        renamed = [(name.replace(".attn.", "."), hook) for name, hook in fwd_hooks]
        return self.counter.run_with_hooks(token_ids, fwd_hooks=renamed)


@pytest.mark.parametrize("position", ["ape", "rope"])
@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_paths_into_heads_are_those_of_transformer_lens(position: str, component: Any) -> None:
    counter = lively(position)
    clean, corrupted = pair()
    renamed: Any = Renamed(counter)
    with torch.no_grad(), counter.at_positions(corrupted.position_ids):
        caches = [counter.run_with_cache(batch.token_ids)[1] for batch in (clean, corrupted)]
        theirs = transformer_lens.patching.get_act_patch_direct_path(
            renamed, corrupted.token_ids, *caches, metric, 0, 2, component, verbose=False
        )
    found = path_patch(counter, clean, corrupted, Site("z", 0, 2), component, metric)
    assert found.axes == {"layer": (1, 2), "head": (0, 1, 2, 3)}
    np.testing.assert_allclose(found.values, theirs[1:], atol=2e-5)
    assert theirs[1:].std() > 1e-3


@pytest.mark.parametrize("kind", ["z", "attn_out", "mlp_out"])
def test_the_last_layer_writes_to_the_logits_alone(kind: str) -> None:
    """Behind it nothing but the head reads the MLP; attention is also read by the MLP of its layer."""
    counter = lively()
    found = path_patch(counter, *pair(), Site(kind, 2), "logits", metric)
    whole = activation_patch(counter, *pair(), kind, metric, axes=["layer"]).values[2]
    assert (found.values[0] == pytest.approx(whole, abs=1e-5)) == (kind == "mlp_out")


def test_attention_reaches_the_mlp_of_its_own_layer() -> None:
    counter = lively(n_layers=1)
    clean, corrupted = pair()
    found = path_patch(counter, clean, corrupted, Site("attn_out", 0), "mlp", metric, axes=["layer", "pos"])
    assert found.values.shape == (1, N_POS)
    with torch.no_grad():
        _, cache = counter.run_with_cache(clean.token_ids, clean.position_ids)
        _, own = counter.run_with_cache(corrupted.token_ids, corrupted.position_ids)
        stream = own["resid_pre", 0] + cache["attn_out", 0]
        mlp_out = counter.blocks[0].mlp(counter.blocks[0].ln2(stream))

        def edit(x: Tensor, hook: Any) -> Tensor:
            return torch.cat([x[:, :3], mlp_out[:, 3:4], x[:, 4:]], 1)

        hooks = [(hook_name("mlp_out", 0), edit)]
        expected = metric(counter.run_with_hooks(corrupted.token_ids, corrupted.position_ids, fwd_hooks=hooks))
    assert found.values[0, 3] == pytest.approx(float(expected), abs=1e-5)


def test_an_embedding_with_one_reader_is_the_embedding() -> None:
    """All paths of a token's embedding together are the patch of it: heads, MLP and logits of a single layer."""
    counter = lively(n_layers=1)
    with torch.no_grad():
        counter.blocks[0].mlp.W_out.zero_()
        counter.blocks[0].attn.W_O.zero_()
    found = path_patch(counter, *pair(), Site("embed"), "logits", metric)
    np.testing.assert_allclose(
        found.values, activation_patch(counter, *pair(), "embed", metric, axes=[]).values, atol=1e-5
    )


@pytest.mark.parametrize(
    ("sender", "receiver", "message"),
    [
        (Site("q", 0, 1), "q", "unknown sender 'q'.*z"),
        (Site("z", 0, 9), "q", r"no L0 H9 z: only z has heads, here 0\.\.3"),
        (Site("z", 7, 0), "q", "it has 3 layers"),
        (Site("z", 2, 0), "q", "in the last layer; receiver='logits'"),
        (Site("z", 0, 0), "mpl", "unknown receiver 'mpl': did you mean mlp"),
    ],
)
def test_paths_that_do_not_exist_are_refused(sender: Site, receiver: str, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        path_patch(lively(), *pair(), sender, receiver, metric)


def test_a_recurrent_counter_has_no_paths() -> None:
    with pytest.raises(NotApplicable, match="recurrent"):
        path_patch(build_counter(RNNConfig(N_TOKENS), torch.Generator()), *pair(), Site("embed"))
