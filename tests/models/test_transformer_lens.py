"""Golden logits: a counter gives the same in TransformerLens 4.x and 3.x, for every scheme."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models import CountLensError, TransformerConfig, build_counter, save_counter, to_transformer_lens
from models.export import export_bridge, export_hooked_transformer
from models.schemes import SCHEMES
from tests.helpers.oracles import install_oracle

OLD_VERSION = "3.9.0"
CASES = [(name, causal) for name, scheme in SCHEMES.items() if scheme.bias is None for causal in (True, False)]


def case(position: str, causal: bool) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A counter with lively weights, rows of tokens, and position ids shifted by another offset in each row."""
    generator = torch.Generator().manual_seed(7)
    counter = build_counter(TransformerConfig(13, position, n_layers=3, causal=causal), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    token_ids = torch.randint(0, 13, (4, 30), generator=generator)
    return counter.eval(), token_ids, torch.arange(30) + torch.tensor([[0], [1], [40], [98]])


@pytest.mark.parametrize(("position", "causal"), CASES)
def test_the_bridge_of_4x_gives_the_same_logits(position: str, causal: bool) -> None:
    counter, token_ids, position_ids = case(position, causal)
    bridge = to_transformer_lens(counter)
    expected = counter(token_ids, position_ids)
    assert expected.std() > 0.5
    torch.testing.assert_close(bridge(token_ids, position_ids=position_ids), expected, atol=1e-4, rtol=0)


def test_sine_waves_of_other_periods_are_carried_over_and_rotations_are_refused(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(7)
    waves, turns = (
        build_counter(TransformerConfig(13, name, init_std=0.3, periods=(10.0, 20.0)), generator).eval()
        for name in ("sine", "rope")
    )
    token_ids = torch.randint(0, 13, (2, 30), generator=generator)
    position_ids = torch.arange(30) + torch.tensor([[0], [40]])
    logits = to_transformer_lens(waves)(token_ids, position_ids=position_ids)
    torch.testing.assert_close(logits, waves(token_ids, position_ids), atol=1e-4, rtol=0)
    for refused in (to_transformer_lens, lambda counter: export_hooked_transformer(counter, tmp_path)):
        with pytest.raises(CountLensError, match="no Transformer with rope positions of other periods than the usual"):
            refused(turns)
    assert not list(tmp_path.iterdir())


def test_the_comparison_can_fail() -> None:
    """Another pairing of rope's columns, or no division by the layer, is far outside the tolerance."""
    counter, token_ids, position_ids = case("rope", True)
    bridge = to_transformer_lens(counter)
    counter.rotary_cos = counter.rotary_cos.roll(1, dims=-1)
    assert (bridge(token_ids, position_ids=position_ids) - counter(token_ids, position_ids)).abs().max() > 1e-2
    counter, token_ids, position_ids = case("ape", True)
    bridge = to_transformer_lens(counter)
    counter.blocks[2].attn.score_scale *= 3
    assert (bridge(token_ids, position_ids=position_ids) - counter(token_ids, position_ids)).abs().max() > 1e-2


@pytest.fixture(scope="session")
def old_transformer_lens() -> Path:
    """A folder with TransformerLens 3.x, installed once and kept."""
    return install_oracle(f"transformer-lens=={OLD_VERSION}", "better-abc==0.0.3")


# What a user of 3.x does with a checkpoint file; positions other than 0, 1, 2, ... go in through a hook.
OLD_USER = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch, transformer_lens
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

assert Path(transformer_lens.__file__).is_relative_to(sys.argv[1])
hooks = {}
for folder in sorted(Path(sys.argv[2]).iterdir()):
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        cfg = json.loads(file.metadata()["countlens"])["transformer_lens"]
    model = HookedTransformer(HookedTransformerConfig.from_dict(cfg))
    missing, unexpected = model.load_state_dict(load_file(path), strict=False)
    assert not unexpected, unexpected
    assert all(name.endswith((".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")) for name in missing), missing
    batch = load_file(folder / "batch.safetensors")
    fwd_hooks = []
    if cfg["positional_embedding_type"] == "standard":
        fwd_hooks = [("hook_pos_embed", lambda _, hook: model.W_pos[batch["position_ids"]])]
    logits = model.run_with_hooks(batch["token_ids"], fwd_hooks=fwd_hooks)
    save_file({"logits": logits.detach().contiguous()}, folder / "logits.safetensors")
    hooks[folder.name] = list(model.hook_dict)
print(json.dumps(hooks))
"""


@pytest.mark.slow
def test_hooked_transformer_of_3x_gives_the_same_logits_and_has_the_same_hooks(
    tmp_path: Path, old_transformer_lens: Path
) -> None:
    counters = {}
    for position, causal in CASES:
        counter, token_ids, position_ids = case(position, causal)
        folder = tmp_path / f"{position}-{causal}"
        save_counter(folder / "model.safetensors", counter)
        save_file({"token_ids": token_ids, "position_ids": position_ids}, folder / "batch.safetensors")
        counters[folder.name] = counter, counter(token_ids, position_ids)
    command = [sys.executable, "-c", OLD_USER, str(old_transformer_lens), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    hooks = json.loads(done.stdout.splitlines()[-1])
    assert set(hooks) == set(counters)
    for name, (counter, expected) in counters.items():
        logits = load_file(tmp_path / name / "logits.safetensors")["logits"]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
        assert hooks[name] == list(counter.hook_dict)


def test_exported_folders_hold_a_config_and_the_tensors(tmp_path: Path) -> None:
    counter, *_ = case("rope", True)
    export_hooked_transformer(counter, tmp_path / "old")
    export_bridge(counter, tmp_path / "new")
    config = json.loads((tmp_path / "old/config.json").read_text())
    assert config == json.loads((tmp_path / "new/config.json").read_text()) == counter.transformer_lens_config()
    assert "blocks.0.attn.W_Q" in load_file(tmp_path / "old/model.safetensors")
    bridge = to_transformer_lens(counter)
    bridge.load_state_dict(load_file(tmp_path / "new/model.safetensors"))


def test_a_counter_that_transformer_lens_cannot_hold_is_refused(tmp_path: Path) -> None:
    counter, *_ = case("ape", True)
    counter.transformer_lens_config = lambda: None
    with pytest.raises(CountLensError, match="TransformerLens has no Transformer"):
        to_transformer_lens(counter)
