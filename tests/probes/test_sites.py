"""Sites: what each family offers, and that what is read there is what the hooks give."""

import numpy as np
import pytest
import torch

from models.config import LSTMConfig, MambaConfig, RNNConfig, RWKV6Config, S4Config, TransformerConfig
from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.hooks import hook_name
from probes.sites import Site, all_heads, kinds_of, site_activations, sites_of


def counter_of(cfg: object, seed: int = 0) -> Counter:
    return build_counter(cfg, torch.Generator().manual_seed(seed)).eval()


def transformer(position: str) -> Counter:
    return counter_of(TransformerConfig(7, max_position=16, d_model=8, n_heads=2, d_mlp=12, position=position))


IDS = torch.arange(10).reshape(2, 5) % 7
PIDS = torch.arange(5).expand(2, -1) + torch.tensor([[0], [3]])


def test_a_transformer_offers_every_head_of_every_layer() -> None:
    labels = [site.label for site in sites_of(transformer("ape"))]
    assert labels[0] == "L0 resid_pre"
    assert [label for label in labels if label.startswith("L1")] == [
        *("L1 H0 q", "L1 H1 q", "L1 H0 k", "L1 H1 k", "L1 H0 v", "L1 H1 v", "L1 H0 z", "L1 H1 z"),
        *("L1 attn_out", "L1 resid_mid", "L1 mlp_post", "L1 mlp_out", "L1 resid_post"),
    ]


def test_only_rope_has_rotated_queries_and_no_positions_in_its_first_input() -> None:
    assert "rot_q" in kinds_of(transformer("rope"))
    assert "rot_q" not in kinds_of(transformer("ape"))
    assert Site("resid_pre", 0) not in sites_of(transformer("rope"))


@pytest.mark.parametrize(
    ("cfg", "width"),
    [
        (RNNConfig(7, d_model=8), 8),
        (LSTMConfig(7, d_model=8), 16),
        (S4Config(7, d_model=8, d_state=4), 32),
        (MambaConfig(7, d_model=8, d_state=4), 64),
        (RWKV6Config(7, d_model=8, d_head=4), 64),
    ],
)
def test_a_recurrent_state_is_one_long_vector(cfg: object, width: int) -> None:
    counter = counter_of(cfg)
    sites = sites_of(counter)
    assert {Site("state", 0), Site("resid_post", 1)} <= set(sites)
    values = site_activations(counter, IDS, PIDS, sites)
    assert values[Site("state", 1)].shape == (2, 5, width)


def test_sites_hold_what_the_hooks_give() -> None:
    counter = transformer("rope")
    sites = sites_of(counter, kinds_of(counter))
    values = site_activations(counter, IDS, PIDS, sites)
    with torch.inference_mode():
        _, cache = counter.run_with_cache(IDS, PIDS)
    assert list(values) == sites
    for site, tensor in (
        (Site("rot_k", 1, 1), cache[hook_name("rot_k", 1)][:, :, 1]),
        (Site("mlp_post", 0), cache[hook_name("post", 0)]),
        (Site("embed"), cache[hook_name("embed")]),
    ):
        np.testing.assert_allclose(values[site], tensor.numpy(), atol=1e-6)


def test_without_a_head_all_heads_stand_side_by_side() -> None:
    counter = transformer("ape")
    one, both = Site("z", 0, 1), Site("z", 0)
    values = site_activations(counter, IDS, PIDS, [one, both])
    np.testing.assert_array_equal(values[both][..., 4:], values[one])
    assert all_heads([Site("z", 0, 0), one]) == [both]


def test_reading_leaves_the_counter_in_its_mode_and_takes_no_gradients() -> None:
    counter = counter_of(LSTMConfig(7, d_model=8, n_layers=2, dropout=0.5)).train()
    first, second = (site_activations(counter, IDS, PIDS, [Site("resid_post", 1)]) for _ in range(2))
    np.testing.assert_array_equal(first[Site("resid_post", 1)], second[Site("resid_post", 1)])
    assert counter.training


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda counter: sites_of(counter, ["resid_pots"]), "unknown site 'resid_pots': did you mean resid_post"),
        (lambda counter: sites_of(counter, ["state"]), "unknown site 'state'"),
        (lambda counter: site_activations(counter, IDS, PIDS, [Site("q", 0, 2)]), "unknown site 'L0 H2 q'"),
        (lambda counter: site_activations(counter, IDS, PIDS, [Site("state", 0)]), "unknown site 'L0 state'"),
        (lambda counter: site_activations(counter, IDS, PIDS, [Site("mlp_out", 0, 1)]), "unknown site 'L0 H1 mlp_out'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(ask: object, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        ask(transformer("ape"))  # type: ignore[operator]
