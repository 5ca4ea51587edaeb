"""TransformerLens' logit lens and attribution run on counters as they are, and give the counters' own logits."""

import pytest
import torch
from torch import nn
from transformer_lens.tools.analysis import direct_logit_attribution, logit_lens
from transformer_lens.tools.analysis.attribution_patching import Node, attribution_patch

from models import FAMILIES, CountLensError, TransformerConfig, build_counter, hook_name, to_transformer_lens
from models.counter import Counter
from models.recurrent import HookedLayerNorm, HookedRMSNorm

STREAMS = ("transformer", "s4", "mamba", "rwkv6")  # the families with a residual stream


def lively(family: str, **settings: object) -> Counter:
    """A counter in which nothing is zero or one: biases, norms and all."""
    generator = torch.Generator().manual_seed(3)
    counter = build_counter(FAMILIES[family].config(13, n_layers=2, d_model=64, **settings), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return counter.eval()


def rows(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    token_ids = torch.randint(0, 13, (3, 20), generator=torch.Generator().manual_seed(seed))
    return token_ids, torch.arange(20) + torch.tensor([[0], [5], [90]])


@pytest.mark.parametrize("family", STREAMS)
def test_the_lens_ends_with_the_logits(family: str) -> None:
    counter = lively(family)
    token_ids, position_ids = rows()
    with counter.at_positions(position_ids):
        lens = logit_lens(counter, token_ids, positions=None)
    assert lens.labels == ["0_pre", "1_pre", "final_post"]
    torch.testing.assert_close(lens.values[-1], counter(token_ids, position_ids), atol=1e-4, rtol=0)
    assert (lens.values[0] - lens.values[-1]).abs().max() > 0.1


@pytest.mark.parametrize("family", ["rnn", "lstm"])
def test_there_is_no_lens_where_layers_replace_the_stream(family: str) -> None:
    token_ids, position_ids = rows()
    with lively(family).at_positions(position_ids) as counter, pytest.raises(ValueError, match="residual stream"):
        logit_lens(counter, token_ids)


@pytest.mark.parametrize("unit", ["component", "head"])
@pytest.mark.parametrize("position", ["ape", "rope"])
def test_attributions_add_up_to_the_difference_of_two_logits(position: str, unit: str) -> None:
    counter = lively("transformer", position=position)
    token_ids, position_ids = rows()
    right, wrong = rows(1)[0], rows(2)[0]
    with counter.at_positions(position_ids):
        found = direct_logit_attribution(counter, token_ids, right, wrong, unit=unit, pos=None)
    logits = counter(token_ids, position_ids)
    difference = (logits.gather(-1, right[..., None]) - logits.gather(-1, wrong[..., None]))[..., 0]
    constant = counter.ln_final.b @ counter.W_U  # no component writes the final norm's bias
    torch.testing.assert_close(
        found.attribution.sum(0) + constant[right] - constant[wrong], difference, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("position", ["ape", "rope"])
def test_attribution_patching_estimates_small_patches(position: str) -> None:
    """Where all tokens look nearly the same, the first order of a patch's effect is all there is."""
    counter = lively("transformer", position=position).double()
    with torch.no_grad():
        counter.embed.W_E.mul_(1e-4).add_(torch.linspace(-1, 2, 64) ** 2)
    (clean, position_ids), (corrupted, _) = rows(), rows(1)
    clean, corrupted, position_ids = clean[:1, :6], corrupted[:1, :6], position_ids[:1, :6]
    weights = torch.randn(6, 13, generator=torch.Generator().manual_seed(4), dtype=torch.double)

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return (logits * weights).sum()

    with counter.at_positions(position_ids):
        scores = attribution_patch(counter, clean, corrupted, metric).node_scores
        _, cache = counter.run_with_cache(clean)
        unpatched = metric(counter(corrupted))
        nodes = [node for node in scores if node.kind == "attn_head_out"]
        effects = []
        for node in nodes:

            def edit(z: torch.Tensor, hook: object, node: Node = node) -> torch.Tensor:
                z = z.clone()
                z[:, node.position, node.head] = cache["z", node.layer][:, node.position, node.head]
                return z

            hooks = [(hook_name("z", node.layer), edit)]
            effects.append(metric(counter.run_with_hooks(corrupted, fwd_hooks=hooks)) - unpatched)
    effect = torch.stack(effects).detach()
    assert len(nodes) == 2 * 6 * counter.cfg.n_heads
    assert effect.abs().max() > 1e-7
    estimate = torch.tensor([scores[node] for node in nodes], dtype=torch.double)
    torch.testing.assert_close(estimate, effect, atol=2e-2 * float(effect.abs().max()), rtol=0)


def test_the_full_decomposition_adds_up_to_the_residual_stream() -> None:
    counter = lively("transformer", position="sine")
    _, cache = counter.run_with_cache(*rows())
    for expand_neurons in (False, True):
        parts = cache.get_full_resid_decomposition(expand_neurons=expand_neurons)
        torch.testing.assert_close(parts.sum(0), cache["resid_post", 1], atol=1e-4, rtol=0)
    parts = cache.get_full_resid_decomposition(layer=1, mlp_input=True, expand_neurons=False)
    torch.testing.assert_close(parts.sum(0), cache["resid_mid", 1], atol=1e-4, rtol=0)


def test_the_lens_is_that_of_transformer_lens_own_model() -> None:
    counter = lively("transformer", position="ape")
    token_ids, _ = rows()
    bridge = to_transformer_lens(counter).eval()
    theirs = logit_lens(bridge, token_ids, positions=None, incl_mid=True)
    with counter.at_positions(torch.arange(20).expand(3, -1)):
        ours = logit_lens(counter, token_ids, positions=None, incl_mid=True)
    assert ours.labels == theirs.labels
    torch.testing.assert_close(ours.values, theirs.values, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(HookedLayerNorm(8), nn.LayerNorm(8)), (HookedRMSNorm(8, 1e-5), nn.RMSNorm(8, eps=1e-5))],
    ids=["LayerNorm", "RMSNorm"],
)
def test_a_hooked_norm_is_torch_s_whether_heard_or_not(ours: nn.Module, theirs: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(2, 5, 8, generator=generator) + 1
    heard = []
    assert torch.equal(ours(x), theirs(x))
    ours.hook_scale.add_hook(lambda scale, hook: heard.append(scale))
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=1e-6)
    assert heard[0].shape == (2, 5, 1)


def test_a_stream_through_rwkv6_fires_no_hook_of_its_norm() -> None:
    counter = lively("rwkv6")
    fired: list[str] = []
    counter.add_hook("ln_final.hook_scale", lambda value, hook: fired.append(hook.name))
    counter.step(rows()[0][:, 0])
    assert not fired
    counter(*rows())
    assert fired


def test_tokens_as_text_are_refused_with_a_way_out() -> None:
    with pytest.raises(CountLensError, match=r"cannot read '7': pass its id"):
        lively("rnn").to_single_token("7")


def test_a_head_without_bias_has_a_bias_of_zeros() -> None:
    counter = build_counter(TransformerConfig(13), torch.Generator())
    assert torch.equal(counter.b_U, torch.zeros(13))
