"""Mamba against transformers' mixer, its whole model, and TransformerLens' bridge for it; edits, streams, extremes."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import MambaConfig as TheirConfig
from transformers import MambaForCausalLM
from transformers.models.mamba.modeling_mamba import MambaMixer as TheirMixer

import models.mamba
from models import build_counter, load_counter, save_counter
from models.checkpoint import load_tensors
from models.config import MambaConfig
from models.hooks import hook_name
from models.mamba import Mamba, MambaMixer
from models.mamba_scan import selective_scan

CFG = MambaConfig(13, d_model=32, n_layers=2, embed_std=1.0)
TOLERANCE = 1e-5  # of the largest value; transformers computes parts in float32, whatever it is given
MUTANT = 0.1  # a broken mixer is at least this far off


def enliven(module: nn.Module, skip: float = 0.0) -> None:
    """Weights with which the output is all state: at the usual ones it is nearly all skip connection."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("D"):
                parameter.copy_(skip * noise)
            elif name.endswith("A_log"):
                parameter.copy_(0.5 * noise)
            elif name.endswith("dt_proj.bias"):
                parameter.copy_(noise - 1)
            elif name.endswith(("norm.weight", "ln_final.weight", "norm_f.weight")):
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)


def their_config(cfg: MambaConfig = CFG) -> TheirConfig:
    return TheirConfig(
        vocab_size=cfg.d_vocab,
        hidden_size=cfg.d_model,
        state_size=cfg.d_state,
        num_hidden_layers=cfg.n_layers,
        expand=cfg.expand,
        conv_kernel=cfg.d_conv,
        use_cache=False,
    )


def lively_mixers(cfg: MambaConfig, dtype: torch.dtype) -> tuple[MambaMixer, TheirMixer]:
    ours, theirs = MambaMixer(cfg), TheirMixer(their_config(cfg), layer_idx=0)
    enliven(ours)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours.to(dtype), theirs.to(dtype)


def output_and_gradients(mixer: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    x = torch.randn(3, 24, CFG.d_model, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    output = mixer(x)
    (output * torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in mixer.named_parameters()}
    return {"output": output.detach(), "input": x.grad, **gradients}


def errors(got: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference in units of the largest value, for the output and each gradient; overflow is inf."""
    assert set(got) == set(expected)
    differences = {name: (got[name] - value).nan_to_num(math.inf).abs() for name, value in expected.items()}
    return {name: float(difference.max() / expected[name].abs().max()) for name, difference in differences.items()}


def lively_counter(cfg: MambaConfig = CFG, dtype: torch.dtype = torch.float64) -> Mamba:
    counter = build_counter(cfg)
    enliven(counter, skip=0.5)
    assert isinstance(counter, Mamba)
    return counter.to(dtype).eval()


def tokens(n_pos: int = 20) -> tuple[Tensor, Tensor]:
    token_ids = torch.randint(0, 13, (3, n_pos), generator=torch.Generator().manual_seed(3))
    return token_ids, torch.zeros_like(token_ids)


SHAPES = [CFG, replace(CFG, d_state=5, d_conv=2, expand=3), replace(CFG, d_conv=1, expand=1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cfg", SHAPES, ids=["usual", "odd", "no convolution"])
def test_the_mixer_is_that_of_transformers_forwards_and_backwards(cfg: MambaConfig, dtype: torch.dtype) -> None:
    ours, theirs = lively_mixers(cfg, dtype)
    found = errors(output_and_gradients(ours, dtype), output_and_gradients(theirs, dtype))
    assert max(found.values()) < TOLERANCE, found


MUTANTS: dict[str, Callable[..., Tensor]] = {
    "no readout of the state": lambda dt, x, A, B, C: 0 * selective_scan(dt, x, A, B, C),
    "decay that grows": lambda dt, x, A, B, C: selective_scan(dt, x, -A, B, C),
    "no memory": lambda dt, x, A, B, C: selective_scan(dt, x, 1e4 * A, B, C),
    "B and C swapped": lambda dt, x, A, B, C: selective_scan(dt, x, A, C, B),
    "write without step size": lambda dt, x, A, B, C: selective_scan(dt, x / dt, A, B, C),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_scan_is_far_from_that_of_transformers(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.mamba, "selective_scan", MUTANTS[mutant])
    ours, theirs = lively_mixers(CFG, torch.float64)
    found = errors(output_and_gradients(ours, torch.float64), output_and_gradients(theirs, torch.float64))
    assert found["output"] > MUTANT
    assert found["input"] > MUTANT
    assert found["A_log"] > MUTANT
    assert found["x_proj.weight"] > MUTANT


@pytest.mark.parametrize("name", ["conv1d.weight", "dt_proj.bias", "in_proj.weight"])
def test_a_broken_weight_is_far_from_that_of_transformers(name: str) -> None:
    ours, theirs = lively_mixers(CFG, torch.float64)
    with torch.no_grad():
        weight = ours.get_parameter(name)
        broken = {
            "conv1d.weight": weight.flip(-1),  # a convolution that runs backwards
            "dt_proj.bias": torch.zeros_like(weight),
            "in_proj.weight": weight.roll(len(weight) // 2, 0),  # x and the gate z swapped
        }
        weight.copy_(broken[name])
    found = errors(output_and_gradients(ours, torch.float64), output_and_gradients(theirs, torch.float64))
    assert found["output"] > MUTANT


def their_counter(counter: Mamba) -> MambaForCausalLM:
    """transformers' model with the counter's weights."""
    theirs = MambaForCausalLM(their_config(counter.cfg)).eval()
    state = {"backbone.embeddings.weight": counter.embed.W_E, "lm_head.weight": counter.unembed.W_U.T}
    for name, tensor in counter.state_dict().items():
        if name != "embed.W_E":
            state["backbone." + name.replace("blocks.", "layers.").replace("ln_final.", "norm_f.")] = tensor
    theirs.load_state_dict(state, strict=True)
    return theirs


def test_the_whole_counter_is_transformers_model() -> None:
    counter = lively_counter(dtype=torch.float32)
    theirs = their_counter(counter)
    expected, logits = theirs(tokens()[0]).logits, counter(*tokens())
    assert expected.std() > 0.5
    for model_logits in (expected, logits):
        model_logits.logsumexp(-1).sum().backward()
    found = errors(
        {"logits": logits.detach(), "embedding": counter.embed.W_E.grad},
        {"logits": expected.detach(), "embedding": theirs.backbone.embeddings.weight.grad},
    )
    assert max(found.values()) < TOLERANCE, found


SITES = ("in_proj", "conv", "x_proj", "ssm_dt", "ssm_B", "ssm_C", "ssm_write", "state", "ssm_out")
HOOKS = [f"hook_{site}" for site in SITES]  # in the order in which they fire


def test_the_hooks_hold_what_those_of_transformer_lens_bridge_hold() -> None:
    counter = lively_counter(dtype=torch.float32)
    theirs = their_counter(counter)
    bridge = build_bridge_from_module(theirs, "MambaForCausalLM", hf_config=theirs.config)
    for block in bridge.blocks:
        block.mixer.eager_scan = True
    with torch.no_grad():
        _, expected = bridge.run_with_cache(tokens()[0], use_cache=False)
        _, cache = counter.run_with_cache(*tokens())
    same = ["hook_in_proj", "hook_x_proj", "hook_ssm_dt", "hook_ssm_out"]
    for layer in range(2):
        mixer = f"blocks.{layer}.mixer."
        pairs = {name: expected[mixer + name] for name in same}
        # There, channels come before positions, and the convolution's output has its padding still.
        pairs["hook_conv"] = expected[mixer + "hook_conv"][..., :20].mT
        pairs["hook_ssm_write"] = expected[mixer + "hook_ssm_write"].transpose(1, 2)
        pairs["hook_state"] = expected[mixer + "hook_ssm_state"].transpose(1, 2)
        _, pairs["hook_ssm_B"], pairs["hook_ssm_C"] = expected[mixer + "hook_x_proj"].split([2, 16, 16], -1)
        assert [mixer + name for name in HOOKS] == [name for name in cache if name.startswith(mixer)]
        assert set(pairs) == set(HOOKS)
        for name, value in pairs.items():
            assert cache[mixer + name].shape == value.shape, name
            error = (cache[mixer + name] - value).abs().max() / value.abs().max()
            assert error < 3 * TOLERANCE, (name, error)
        for site in ("resid_pre", "resid_post"):
            name = hook_name(site, layer=layer)
            got, value = cache[name], expected[name]
            assert (got - value).abs().max() < TOLERANCE * value.abs().max()


def moved_by(counter: Mamba, name: str, edit: Callable[[Tensor], Tensor], watched: str) -> tuple[Tensor, Tensor]:
    """Where an edit at position 7 of the last mixer changes the logits and another hook, [pos] each."""
    seen: list[Tensor] = []
    calls: list[Any] = []

    def at_seven(value: Tensor, hook: Any) -> Tensor:
        calls.append(value.shape[:2])
        value = value.clone()
        value[:, 7] = edit(value[:, 7])
        return value

    mixer = "blocks.1.mixer."
    watch = (mixer + watched, lambda value, hook: seen.append(value))
    plain = counter.run_with_hooks(*tokens(), fwd_hooks=[watch])
    edited = counter.run_with_hooks(*tokens(), fwd_hooks=[(mixer + name, at_seven), watch])
    assert calls == [(3, 20)], "once, with all positions"
    return (edited - plain).abs().amax((0, 2)), (seen[1] - seen[0]).abs().flatten(2).amax((0, 2))


@pytest.mark.parametrize(
    ("name", "watched", "reach"),
    [
        ("hook_in_proj", "hook_conv", 4),  # the convolution's width
        ("hook_conv", "hook_x_proj", 1),
        ("hook_x_proj", "hook_ssm_B", 1),
        ("hook_ssm_dt", "hook_ssm_write", 1),
        ("hook_ssm_B", "hook_ssm_write", 1),
        ("hook_ssm_write", "hook_state", 13),
    ],
)
def test_an_edit_of_an_input_goes_into_all_that_depends_on_it(name: str, watched: str, reach: int) -> None:
    logits, other = moved_by(lively_counter(), name, lambda value: value + 0.5, watched)
    assert (other[7 : 7 + reach] > 1e-6).all()
    other[7 : 7 + reach] = 0
    assert other.max() == 0
    assert logits[:7].max() < 1e-9
    assert logits[7:].min() > 1e-7, "the state carries it on"


@pytest.mark.parametrize("name", ["hook_ssm_C", "hook_ssm_out"])
def test_an_edit_of_the_readout_stays_where_it_is(name: str) -> None:
    logits, states = moved_by(lively_counter(), name, lambda value: value + 0.5, "hook_state")
    assert states.max() == 0
    assert logits[7] > 1e-3
    logits[7] = 0
    assert logits.max() < 1e-9


def test_a_step_size_of_zero_keeps_the_state() -> None:
    states: list[Tensor] = []
    lively_counter().run_with_hooks(
        *tokens(),
        fwd_hooks=[
            ("blocks.0.mixer.hook_ssm_dt", lambda dt, hook: dt.index_fill(1, torch.tensor([7, 8]), -1e4)),
            ("blocks.0.mixer.hook_state", lambda value, hook: states.append(value)),
        ],
    )
    assert torch.equal(states[0][:, 6], states[0][:, 8])
    assert not torch.equal(states[0][:, 8], states[0][:, 9])


def test_a_stream_carries_the_state_and_a_window_and_fires_no_hook() -> None:
    counter = lively_counter()
    fired: list[str] = []
    for name in counter.hook_dict:
        counter.add_hook(name, lambda value, hook: fired.append(hook.name))
    carry = None
    for token in tokens(5)[0].unbind(1):
        _, carry = counter.step(token, carry)
        assert [tuple(part.shape) for part in carry[0]] == [(3, 64, 16), (3, 3, 64)]
    assert not fired


@pytest.mark.parametrize("n_pos", [1, 2, 3])
def test_rows_shorter_than_the_convolution_are_fine(n_pos: int) -> None:
    counter = lively_counter()
    token_ids, position_ids = tokens()
    expected = counter(token_ids, position_ids)[:, :n_pos]
    got = counter(token_ids[:, :n_pos], position_ids[:, :n_pos])
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=0)


def test_the_head_is_the_embedding(tmp_path: Any) -> None:
    counter = lively_counter(dtype=torch.float32)
    assert not [name for name in counter.state_dict() if "unembed" in name]
    assert not [name for name, _ in counter.named_parameters() if "unembed" in name]
    save_counter(tmp_path / "model.safetensors", counter)
    assert set(load_tensors(tmp_path / "model.safetensors")) == set(counter.state_dict())
    for other in (copy.deepcopy(counter), load_counter(tmp_path).double(), counter):
        with torch.no_grad():
            other.embed.W_E.mul_(2)
        assert other.unembed.W_U.dtype == other.embed.W_E.dtype
        assert torch.equal(other.unembed.W_U.T, other.embed.W_E)
    assert torch.equal(counter.unembed.W_U.float(), load_counter(tmp_path).unembed.W_U * 2)


def test_fresh_weights_are_those_of_the_authors() -> None:
    cfg = MambaConfig(1000, d_model=128, n_layers=4)
    counter = build_counter(cfg, torch.Generator().manual_seed(0))
    assert counter.embed.W_E.std().item() == pytest.approx(0.02, rel=0.02)
    mixer = counter.blocks[3].mixer
    assert torch.allclose(-mixer._A(), torch.arange(1.0, 17).expand(256, 16))
    assert torch.equal(mixer.D, torch.ones(256))
    dt = nn.functional.softplus(mixer.dt_proj.bias)
    assert 1e-3 * 0.999 < dt.min() < 1.5e-3
    assert 0.07 < dt.max() < 0.1001
    assert dt.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.3), "log-uniform"
    for weight, bound in (
        (mixer.in_proj.weight, 128**-0.5),
        (mixer.conv1d.weight, 4**-0.5),
        (mixer.conv1d.bias, 4**-0.5),
        (mixer.x_proj.weight, 256**-0.5),
        (mixer.dt_proj.weight, 8**-0.5),
        (mixer.out_proj.weight, 256**-0.5 / 2),
    ):
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    theirs = TheirMixer(their_config(cfg), layer_idx=0)  # what transformers sets without drawing
    assert torch.allclose(theirs.A_log, mixer.A_log)
    assert torch.equal(theirs.D, mixer.D)


def test_initial_weights_set_every_parameter() -> None:
    counter = build_counter(CFG)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.fill_(math.nan)
    counter.init_weights(torch.Generator().manual_seed(0))
    assert all(parameter.isfinite().all() for parameter in counter.parameters())


def test_time_constants_and_skips_do_not_decay() -> None:
    counter = build_counter(CFG)
    names = {parameter: name for name, parameter in counter.named_parameters()}
    decaying, kept = counter.parameter_groups(1e-3, 0.1)
    assert {names[parameter].rsplit(".")[-1] for parameter in kept["params"]} == {"A_log", "D"}
    assert len(kept["params"]) == 4
    assert (decaying["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert set(names) == set(decaying["params"]) | set(kept["params"])
    assert len(names) == len(decaying["params"]) + len(kept["params"])


def test_dropout_is_for_training_only() -> None:
    counter = lively_counter(replace(CFG, dropout=0.5))
    assert torch.equal(counter(*tokens()), lively_counter()(*tokens()))
    counter.train()
    assert not torch.allclose(counter(*tokens()), counter(*tokens()))


def test_under_autocast_the_state_stays_whole(monkeypatch: pytest.MonkeyPatch, bfloat16_autocast: Any) -> None:
    counter = build_counter(CFG, torch.Generator().manual_seed(0))
    exact = counter(*tokens())
    dtypes: list[torch.dtype] = []
    with bfloat16_autocast() as products:

        def spy(*inputs: Tensor) -> Tensor:
            dtypes.extend(tensor.dtype for tensor in inputs)
            before = products.count
            states = selective_scan(*inputs)
            assert products.count == before, "the scan has products in bfloat16"
            return states

        monkeypatch.setattr(models.mamba, "selective_scan", spy)
        logits = counter(*tokens())
        _, cache = counter.run_with_cache(*tokens())
        logits.float().square().mean().backward()
    assert products.count > 0
    assert logits.dtype == cache["blocks.0.mixer.hook_in_proj"].dtype == torch.bfloat16, "autocast is at work"
    assert set(dtypes) == {cache["blocks.0.mixer.hook_state"].dtype} == {torch.float32}
    assert (logits - exact).abs().max() < 0.03 * exact.abs().max()
    assert all(parameter.grad.isfinite().all() for parameter in counter.parameters())


@pytest.mark.parametrize("step", [-30.0, 0.0, 30.0], ids=["frozen", "usual", "forgetful"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_rows_strong_decay_and_extreme_inputs_stay_finite(step: float, scale: float) -> None:
    mixer, _ = lively_mixers(CFG, torch.float32)
    with torch.no_grad():
        mixer.dt_proj.bias.add_(step)
        mixer.A_log.add_(abs(step) / 3)
    x = torch.randn(1, 4096, 32, generator=torch.Generator().manual_seed(0)) * scale
    x.requires_grad_()
    output = mixer(x)
    output.sum().backward()
    assert output.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())
    with torch.no_grad():
        torch.testing.assert_close(mixer(x), output)
