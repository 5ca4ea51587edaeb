"""RWKV-6 against the `rwkv` package and against the equations, and what is peculiar to its state."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import models.rwkv6
import models.rwkv6_recurrence
from models import CountLensError, build_counter
from models.config import LSTMConfig, RWKV6Config
from models.hooks import hook_name
from models.rwkv6 import RWKV6
from models.rwkv6_recurrence import recurrence
from tests.helpers.oracles import install_oracle

ORACLE_CFG = RWKV6Config(13, d_model=128, n_layers=3)


def lively(cfg: RWKV6Config, dtype: torch.dtype = torch.float64) -> RWKV6:
    """A counter with decays from almost none to almost everything, and in which every part matters."""
    generator = torch.Generator().manual_seed(1)
    counter = build_counter(cfg, generator)
    with torch.no_grad():
        for name, parameter in counter.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * (2.5 if name.endswith((".time_decay", "time_faaaa")) else 0.15))
    return counter.to(dtype).eval()


def tokens(n_pos: int, rows: int = 3) -> torch.Tensor:
    return torch.randint(0, 13, (rows, n_pos), generator=torch.Generator().manual_seed(2))


def logits_of(
    counter: RWKV6, token_ids: torch.Tensor, hooks: list[tuple[str, Callable[..., Any]]] | None = None
) -> Any:
    return counter.run_with_hooks(token_ids, torch.zeros_like(token_ids), fwd_hooks=hooks or [])


@pytest.fixture(scope="session")
def rwkv_package() -> Path:
    """A folder with the rwkv package, installed once and kept."""
    return install_oracle("rwkv==0.8.32")


def reference_names(counter: RWKV6) -> dict[str, torch.Tensor]:
    """The weights under the names, and in the shapes, of the reference's own files."""
    named = {}
    for name, tensor in counter.state_dict().items():
        if name.endswith("mixer.time_maa"):
            for letter, row in zip("wkvrg", tensor, strict=True):
                named[name.replace("mixer.time_maa", f"att.time_maa_{letter}")] = row
        elif name in ("embed.W_E", "unembed.W_U"):
            named.update({"emb.weight": tensor} if name == "embed.W_E" else {"head.weight": tensor.T})
        else:
            theirs = name.replace(".mixer.", ".att.").replace(".mlp.", ".ffn.")
            named[theirs.replace("ln_embed", "blocks.0.ln0").replace("ln_final", "ln_out")] = tensor
    return {
        name: (tensor[None, None] if tensor.ndim == 1 and "time_" in name else tensor).contiguous()
        for name, tensor in named.items()
    }


# In a process of its own: importing the package sets torch's global flags. It reads weights from .pth files only.
ORACLE = """
import json, os, sys
os.environ["RWKV_JIT_ON"] = os.environ["RWKV_CUDA_ON"] = "0"
sys.path.insert(0, sys.argv[1])
import torch
from pathlib import Path
from safetensors.torch import load_file, save_file
import rwkv.model

assert Path(rwkv.model.__file__).is_relative_to(sys.argv[1])
folder = Path(sys.argv[2])
torch.save(load_file(folder / "reference.safetensors"), folder / "model.pth")
model = rwkv.model.RWKV(model=str(folder / "model"), strategy="cpu fp32", verbose=False)
logits, states = [], []
for row in load_file(folder / "batch.safetensors")["token_ids"].tolist():
    out, state = model.forward(row, None, full_output=True)
    logits.append(out)
    states.append(torch.stack(state[1::3]))
save_file({"logits": torch.stack(logits), "states": torch.stack(states)}, folder / "answer.safetensors")
print(json.dumps({"version": model.version, "heads": model.args.n_head}))
"""


@pytest.fixture(scope="module")
def oracle(rwkv_package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The package's logits at every position and its states after the last."""
    folder = tmp_path_factory.mktemp("rwkv")
    save_file(reference_names(lively(ORACLE_CFG, torch.float32)), folder / "reference.safetensors")
    save_file({"token_ids": tokens(45)}, folder / "batch.safetensors")
    command = [sys.executable, "-c", ORACLE, str(rwkv_package), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"version": 6, "heads": 2}
    return load_file(folder / "answer.safetensors")


@pytest.mark.slow
def test_the_rwkv_package_gives_the_same_logits(oracle: dict[str, torch.Tensor]) -> None:
    logits = logits_of(lively(ORACLE_CFG, torch.float32), tokens(45))
    assert oracle["logits"].std() > 0.5
    torch.testing.assert_close(logits, oracle["logits"], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_the_rwkv_package_ends_in_the_same_states(oracle: dict[str, torch.Tensor]) -> None:
    counter = lively(ORACLE_CFG, torch.float32)
    token_ids = tokens(45)
    _, cache = counter.run_with_cache(token_ids, torch.zeros_like(token_ids))
    for layer, states in enumerate(oracle["states"].unbind(1)):
        assert states.std() > 0.1
        trajectory = cache[hook_name("state", layer=layer)]
        torch.testing.assert_close(trajectory[:, -1, 1], states, atol=1e-3, rtol=1e-4)
        for other in (trajectory[:, -2, 1], trajectory[:, -1, 0]):  # one position early, or what is read there
            assert (other - states).abs().max() > 1


def no_bonus(counter: RWKV6, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        for block in counter.blocks:
            block.mixer.time_faaaa.zero_()


def flipped_decay(counter: RWKV6, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        for block in counter.blocks:
            block.mixer.time_decay.neg_()
            block.mixer.time_decay_w2.neg_()


def no_state(counter: RWKV6, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.rwkv6, "recurrence", lambda r, k, v, log_decay, u: (r * u * k).sum(-1, keepdim=True) * v)


def no_token_shift(counter: RWKV6, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.rwkv6, "shift_by_one", lambda x: x)


def state_read_after_its_own_position(counter: RWKV6, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other linear recurrences do it, y_t = r_t S_t."""

    def late(r: Any, k: Any, v: Any, log_decay: Any, u: Any) -> Any:
        return recurrence(r * log_decay.exp(), k, v, log_decay, torch.zeros_like(u)) + (r * k).sum(-1, keepdim=True) * v

    monkeypatch.setattr(models.rwkv6, "recurrence", late)


MUTANTS = [no_bonus, flipped_decay, no_state, no_token_shift, state_read_after_its_own_position]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_rwkv_package_would_notice(
    mutant: Callable[..., None], oracle: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = lively(ORACLE_CFG, torch.float32)
    mutant(counter, monkeypatch)
    error = (logits_of(counter, tokens(45)) - oracle["logits"]).abs().max()
    assert error > 0.1, f"a thousand times the tolerance: {error}"


def equations(weights: dict[str, torch.Tensor], cfg: RWKV6Config, row: torch.Tensor) -> torch.Tensor:
    """Logits of one row, position by position, straight from the equations and the reference's names."""

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def mixed(x: torch.Tensor, last: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        return x + (last - x) * amount.squeeze()

    heads, width = cfg.n_heads, cfg.d_head
    zeros = row.new_zeros(cfg.d_model, dtype=torch.float64)
    last_time, last_channel = [zeros] * cfg.n_layers, [zeros] * cfg.n_layers
    state = [[torch.zeros(width, width, dtype=torch.float64) for _ in range(heads)] for _ in range(cfg.n_layers)]
    out = []
    for token in row.tolist():
        resid = norm("blocks.0.ln0", weights["emb.weight"][token])
        for layer in range(cfg.n_layers):
            name = f"blocks.{layer}"
            att = {key.removeprefix(f"{name}.att."): value for key, value in weights.items() if f"{name}.att." in key}
            ffn = {key.removeprefix(f"{name}.ffn."): value for key, value in weights.items() if f"{name}.ffn." in key}
            x, last = norm(f"{name}.ln1", resid), last_time[layer]
            low_rank = torch.tanh(mixed(x, last, att["time_maa_x"]) @ att["time_maa_w1"]).split(cfg.shift_rank)
            amounts = [
                att[f"time_maa_{letter}"].squeeze() + low_rank[index] @ att["time_maa_w2"][index]
                for index, letter in enumerate("wkvrg")
            ]
            xw, xk, xv, xr, xg = (mixed(x, last, amount) for amount in amounts)
            r, k, v = att["receptance.weight"] @ xr, att["key.weight"] @ xk, att["value.weight"] @ xv
            log_log = att["time_decay"].squeeze() + torch.tanh(xw @ att["time_decay_w1"]) @ att["time_decay_w2"]
            decay = torch.exp(-torch.exp(log_log))
            y = []
            for head in range(heads):
                own = slice(head * width, (head + 1) * width)
                now = torch.outer(k[own], v[own])
                y.append(r[own] @ (state[layer][head] + torch.diag(att["time_faaaa"][head]) @ now))
                state[layer][head] = torch.diag(decay[own]) @ state[layer][head] + now
            y = [(part - part.mean()) / torch.sqrt(part.var(unbiased=False) + 64e-5) for part in y]
            gate = att["gate.weight"] @ xg
            normed = torch.cat(y) * att["ln_x.weight"] + att["ln_x.bias"]
            resid = resid + att["output.weight"] @ (normed * gate * torch.sigmoid(gate))
            last_time[layer] = x
            x, last = norm(f"{name}.ln2", resid), last_channel[layer]
            hidden = torch.relu(ffn["key.weight"] @ mixed(x, last, ffn["time_maa_k"])) ** 2
            open_ = torch.sigmoid(ffn["receptance.weight"] @ mixed(x, last, ffn["time_maa_r"]))
            resid = resid + open_ * (ffn["value.weight"] @ hidden)
            last_channel[layer] = x
        out.append(weights["head.weight"] @ norm("ln_out", resid))
    return torch.stack(out)


LOOP_CFG = RWKV6Config(13, d_model=32, n_layers=2, d_head=16, shift_rank=5, decay_rank=7)


@pytest.fixture(scope="module")
def loop_answer() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits and gradients of their mean fourth power, by the loop."""
    weights = {name: tensor.clone().requires_grad_() for name, tensor in reference_names(lively(LOOP_CFG)).items()}
    logits = torch.stack([equations(weights, LOOP_CFG, row) for row in tokens(21)])
    logits.pow(4).mean().backward()
    return logits.detach(), {name: tensor.grad for name, tensor in weights.items() if tensor.grad is not None}


def answer(counter: RWKV6) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    logits = logits_of(counter, tokens(21))
    logits.pow(4).mean().backward()
    gradients = RWKV6(LOOP_CFG).double()
    for mine, parameter in zip(gradients.parameters(), counter.parameters(), strict=True):
        mine.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return logits.detach(), reference_names(gradients)


def test_logits_and_all_gradients_are_those_of_the_equations(
    loop_answer: tuple[torch.Tensor, dict[str, torch.Tensor]],
) -> None:
    logits, gradients = answer(lively(LOOP_CFG))
    torch.testing.assert_close(logits, loop_answer[0], atol=1e-11, rtol=0)
    assert set(gradients) == set(loop_answer[1])
    for name, expected in loop_answer[1].items():
        assert expected.abs().max() > 1e-4, name
        torch.testing.assert_close(gradients[name], expected, atol=1e-11, rtol=1e-9, msg=name)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_equations_would_notice(
    mutant: Callable[..., None],
    loop_answer: tuple[torch.Tensor, dict[str, torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counter = lively(LOOP_CFG)
    mutant(counter, monkeypatch)
    logits, gradients = answer(counter)
    assert (logits - loop_answer[0]).abs().max() > 1e-2
    assert max((gradients[name] - expected).abs().max() for name, expected in loop_answer[1].items()) > 1e-2


def test_a_first_call_without_gradients_leaves_later_ones_theirs() -> None:
    models.rwkv6_recurrence._constants.cache_clear()
    counter = lively(LOOP_CFG)
    with torch.inference_mode():
        logits_of(counter, tokens(12))
    logits_of(counter, tokens(12)).sum().backward()
    assert counter.embed.W_E.grad is not None


@pytest.mark.parametrize("shift", [-60.0, 60.0])
def test_extreme_decays_give_finite_numbers_on_every_path(shift: float) -> None:
    counter = lively(RWKV6Config(13, d_model=32, d_head=16), torch.float32).train()
    with torch.no_grad():
        for block in counter.blocks:
            block.mixer.time_decay.add_(shift)
            for linear in (block.mixer.receptance, block.mixer.key, block.mixer.value):
                linear.weight.mul_(100)
    fast = logits_of(counter, tokens(50))
    opened = logits_of(counter, tokens(50), [("blocks.0.mixer.hook_state", lambda x, hook: None)])
    torch.testing.assert_close(opened, fast, atol=1e-3, rtol=0)
    fast.pow(2).mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in counter.parameters())


@pytest.mark.parametrize("hooks", [[], [("blocks.0.mixer.hook_state", lambda x, hook: None)]])
def test_four_thousand_tokens_give_finite_numbers(hooks: list[tuple[str, Callable[..., Any]]]) -> None:
    counter = lively(RWKV6Config(13, d_model=32, n_layers=1, d_head=16), torch.float32).train()
    logits = logits_of(counter, tokens(4096, rows=1), hooks)
    logits.pow(2).mean().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in counter.parameters())


@pytest.mark.parametrize("d_head", [2, 16, 32])
def test_narrow_heads_give_the_same_on_every_path(d_head: int) -> None:
    counter = lively(RWKV6Config(13, d_model=32, d_head=d_head))
    fast = logits_of(counter, tokens(20))
    opened = logits_of(counter, tokens(20), [("blocks.0.mixer.hook_r", lambda x, hook: None)])
    torch.testing.assert_close(opened, fast, atol=1e-11, rtol=0)
    carry = None
    for pos, token in enumerate(tokens(20).unbind(1)):
        streamed, carry = counter.step(token, carry)
        torch.testing.assert_close(streamed, fast[:, pos], atol=1e-11, rtol=0)


def outputs_of_mixer(counter: RWKV6, layer: int, token_ids: torch.Tensor, hooks: list[Any]) -> torch.Tensor:
    outputs: list[torch.Tensor] = []
    logits_of(counter, token_ids, [*hooks, (hook_name("mixer_out", layer=layer), lambda x, hook: outputs.append(x))])
    return outputs[0]


def test_the_hooked_state_is_what_is_read_and_what_is_kept() -> None:
    counter = lively(LOOP_CFG)
    token_ids = tokens(12)
    _, cache = counter.run_with_cache(token_ids, torch.zeros_like(token_ids))
    read, kept = cache["blocks.1.mixer.hook_state"].unbind(2)
    k, v, decay = (cache[f"blocks.1.mixer.hook_{name}"] for name in ("k", "v", "decay"))
    before = F.pad(kept, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
    now = k[..., None] * v[..., None, :]
    torch.testing.assert_close(kept, decay[..., None] * before + now)
    torch.testing.assert_close(read, before + counter.blocks[1].mixer.time_faaaa[..., None] * now)
    assert kept[0, 0].abs().max() > 0.01
    assert 0 < decay.min() < 0.1
    assert 0.9 < decay.max() < 1


@pytest.mark.parametrize(("half", "moving"), [(0, [7]), (1, list(range(8, 20)))])
def test_an_edit_of_what_is_read_moves_one_output_and_of_what_is_kept_the_later_ones(
    half: int, moving: list[int], generator: torch.Generator
) -> None:
    counter = lively(LOOP_CFG)
    edit = torch.randn(2, 16, 16, generator=generator).double()

    def edit_half(state: torch.Tensor, hook: Any) -> torch.Tensor | None:
        if hook.ctx["pos"] != 7:
            return None
        state = state.clone()
        state[:, half] += edit
        return state

    hooks = [("blocks.1.mixer.hook_state_step", edit_half)]
    moved = outputs_of_mixer(counter, 1, tokens(20), hooks) - outputs_of_mixer(counter, 1, tokens(20), [])
    moved = moved.abs().amax((0, 2))
    assert [pos for pos in range(20) if moved[pos] > 1e-9] == moving


def test_a_transplanted_state_carries_all_of_the_past_but_the_token_before() -> None:
    counter = lively(RWKV6Config(13, d_model=32, n_layers=1, d_head=16))
    source, target = tokens(20)[:1], tokens(20)[1:2].clone()
    target[:, 6:] = source[:, 6:]  # another past, then the same tokens from one before the transplant on
    states = counter.run_with_cache(source, source)[1]["blocks.0.mixer.hook_state"]
    hooks = [
        ("blocks.0.mixer.hook_state_step", lambda state, hook: states[:, 7] if hook.ctx["pos"] == 7 else None),
    ]
    wanted, before = outputs_of_mixer(counter, 0, source, []), outputs_of_mixer(counter, 0, target, [])
    after = outputs_of_mixer(counter, 0, target, hooks)
    assert (before - wanted)[:, 7:].abs().amax((0, 2)).min() > 1e-3
    torch.testing.assert_close(after[:, 7:], wanted[:, 7:], atol=1e-12, rtol=0)
    # The channel mix looks one position back too, so the logits follow one position later.
    moved = (logits_of(counter, target, hooks) - logits_of(counter, source)).abs().amax((0, 2))
    assert moved[7] > 1e-6
    assert moved[8:].max() < 1e-12


def test_adding_the_same_to_all_columns_of_a_head_is_invisible() -> None:
    counter = lively(LOOP_CFG)
    hooks = [("blocks.1.mixer.hook_state", lambda states, hook: states + 1)]
    torch.testing.assert_close(
        logits_of(counter, tokens(12), hooks), logits_of(counter, tokens(12)), atol=1e-12, rtol=0
    )


def test_an_edit_of_a_decay_goes_on_into_later_outputs() -> None:
    counter = lively(LOOP_CFG)

    def forget(decay: torch.Tensor, hook: Any) -> torch.Tensor:
        decay = decay.clone()
        decay[:, 7] = 0
        return decay

    hooks = [("blocks.1.mixer.hook_decay", forget)]
    moved = outputs_of_mixer(counter, 1, tokens(20), hooks) - outputs_of_mixer(counter, 1, tokens(20), [])
    moved = moved.abs().amax((0, 2))
    assert moved[:8].max() < 1e-12
    assert moved[8:].min() > 1e-6


def test_fresh_blocks_add_nothing_and_the_stream_has_the_references_scale() -> None:
    cfg = RWKV6Config(103, d_model=64, n_layers=2)
    counter = build_counter(cfg, torch.Generator().manual_seed(0)).eval()
    token_ids = torch.arange(100).view(4, 25)
    _, cache = counter.run_with_cache(token_ids, token_ids)
    assert torch.equal(cache["resid_post", 1], cache["resid_pre", 0])
    assert 0.016 < cache["resid_pre", 0].std() < 0.020
    gram = counter.unembed.W_U @ counter.unembed.W_U.T
    torch.testing.assert_close(gram, torch.eye(64) * 0.25 * 103 / 64, atol=1e-5, rtol=0)
    louder = build_counter(RWKV6Config(103, d_model=64, embed_std=1.0), torch.Generator().manual_seed(0))
    assert 0.6 < louder.ln_embed(louder.embed.W_E).std() < 0.75
    decay = counter.blocks[0].mixer.time_decay
    assert (decay[0], decay[-1]) == (-6, -1)


def test_one_layer_is_the_first_and_the_last() -> None:
    counter = build_counter(RWKV6Config(13, n_layers=1), torch.Generator().manual_seed(0))
    assert all(parameter.isfinite().all() for parameter in counter.parameters())


def test_the_bases_of_the_decays_learn_twice_as_fast_and_only_matrices_decay() -> None:
    counter = build_counter(RWKV6Config(13), torch.Generator().manual_seed(0))
    names = {id(parameter): name for name, parameter in counter.named_parameters()}
    groups = counter.parameter_groups(lr=1e-3, weight_decay=0.1)
    settings = {
        names[id(parameter)]: (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]
    }
    assert set(settings) == set(names.values())
    assert sum(len(group["params"]) for group in groups) == len(names)
    assert settings["blocks.1.mixer.time_decay"] == (2e-3, 0)
    assert settings["blocks.1.mixer.time_decay_w1"] == settings["blocks.0.ln1.weight"] == (1e-3, 0)
    assert settings["blocks.0.mlp.key.weight"] == settings["embed.W_E"] == (1e-3, 0.1)
    assert {name for name, (lr, _) in settings.items() if lr == 2e-3} == {
        "blocks.0.mixer.time_decay",
        "blocks.1.mixer.time_decay",
    }
    torch.optim.AdamW(groups).step()


def test_dropout_is_on_the_embedding_and_on_the_whole_residual_stream_and_only_in_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counter = lively(RWKV6Config(13, d_model=32, d_head=16, dropout=0.5))
    assert torch.equal(logits_of(counter, tokens(12)), logits_of(counter, tokens(12)))
    counter.train()
    normed: list[torch.Tensor] = []
    layer_norm = F.layer_norm

    def noted(x: torch.Tensor, *args: Any) -> torch.Tensor:
        normed.append(x)
        return layer_norm(x, *args)

    monkeypatch.setattr(F, "layer_norm", noted)
    _, cache = counter.run_with_cache(tokens(12), tokens(12))
    dropped = {"embedding": normed[0]} | {
        name: cache[name] for name in cache if name.endswith(("resid_mid", "resid_post"))
    }
    assert len(dropped) == 1 + 2 * 2
    for name, x in dropped.items():
        assert (x == 0).double().mean() == pytest.approx(0.5, abs=0.06), name
    for name in ("blocks.0.hook_mixer_out", "blocks.0.hook_mlp_out", "blocks.0.hook_resid_pre"):
        assert (cache[name] == 0).double().mean() < 0.001, name
    resid, added, mid = (cache[f"blocks.0.hook_{name}"] for name in ("resid_pre", "mixer_out", "resid_mid"))
    torch.testing.assert_close(mid[mid != 0], (2 * (resid + added))[mid != 0])


class L2Wrap(torch.autograd.Function):
    """The reference's own form, from its description: the loss passes through, the logits get a gradient."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(logits)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (logits,) = ctx.saved_tensors
        rows, n_pos, _ = logits.shape
        value, index = logits.max(-1, keepdim=True)
        return gradient, torch.zeros_like(logits).scatter(-1, index, 1e-4 / (rows * n_pos) * value)


def test_the_penalty_has_the_gradient_of_the_references_l2wrap() -> None:
    counter = lively(RWKV6Config(13, d_model=32, d_head=16))
    token_ids, row_of = tokens(12)[:3], torch.tensor([0, 0, 0, 1, 2, 2])

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, list(counter.parameters()), retain_graph=True))

    every, merged = logits_of(counter, token_ids[row_of]), logits_of(counter, token_ids)
    theirs = gradients(L2Wrap.apply(every.sum() * 0, every))
    assert max(gradient.abs().max() for gradient in theirs) > 1e-6
    for logits, weights in ((every, torch.ones(6, 1)), (merged, torch.tensor([[3.0], [1.0], [2.0]]))):
        ours = gradients(counter.penalty(logits, weights.expand(-1, 12)))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-9)


def test_other_families_are_trained_without_a_penalty() -> None:
    counter = build_counter(LSTMConfig(13), torch.Generator().manual_seed(0))
    assert counter.penalty(torch.randn(2, 3, 13), torch.ones(2, 3)) == 0


def test_autocast_leaves_the_recurrence_in_full_precision(
    monkeypatch: pytest.MonkeyPatch, bfloat16_autocast: Any
) -> None:
    counter = lively(RWKV6Config(13, d_model=32, d_head=16), torch.float32)
    seen: list[torch.Tensor] = []
    exact = logits_of(counter, tokens(50))
    with bfloat16_autocast() as products:

        def spy(*inputs: torch.Tensor) -> torch.Tensor:
            assert {tensor.dtype for tensor in inputs} == {torch.float32}
            before = products.count
            output = recurrence(*inputs)
            assert products.count == before, "the recurrence has products in bfloat16"
            return output

        monkeypatch.setattr(models.rwkv6, "recurrence", spy)
        fast = logits_of(counter, tokens(50))
        opened = logits_of(counter, tokens(50), [("blocks.1.mixer.hook_state", lambda x, hook: seen.append(x))])
    assert products.count > 0
    assert seen[0].dtype == torch.float32
    assert (fast - exact).abs().mean() < 0.05 * exact.std()
    assert (fast.float() - opened.float()).abs().mean() < 0.01 * exact.std()


def test_heads_that_do_not_fit_are_refused_with_those_that_do() -> None:
    with pytest.raises(CountLensError, match=r"d_head=64 does not split d_model=12.*\[2, 3, 4, 6, 12\]"):
        RWKV6Config(13, d_model=12)
    with pytest.raises(CountLensError, match="two columns or more"):
        RWKV6Config(13, d_head=1)
