"""S4 against scipy's bilinear rule and against a dense recurrence, with mutants that those tests must notice."""

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.signal import cont2discrete

from models import CountLensError, build_counter
from models.config import S4Config
from models.s4 import S4, S4Mixer
from models.s4_kernel import StateSpace, compute_kernel, discretise, hippo_legs, truncate, untruncate

TOLERANCE = 1e-10
TOKENS = 13
Errors = dict[str, float]


def lively(dtype: torch.dtype = torch.float64, module: ModuleType | None = None, **settings: object) -> S4:
    """A counter away from its initial weights, where every channel has an SSM of its own and states matter."""
    cfg = S4Config(TOKENS, **{"d_model": 4, "d_state": 16, "n_layers": 2, "embed_std": 1.0, **settings})
    generator = torch.Generator().manual_seed(1)
    counter = (module or importlib.import_module("models.s4")).S4(cfg)
    counter.init_weights(generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return counter.to(dtype).eval()


def tokens(n_pos: int, n_rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    token_ids = torch.randint(0, TOKENS, (n_rows, n_pos), generator=torch.Generator().manual_seed(2))
    return token_ids, torch.zeros_like(token_ids)


def row(n_pos: int, d_model: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(2, n_pos, d_model, generator=torch.Generator().manual_seed(3), dtype=dtype)


def whole(half: torch.Tensor) -> torch.Tensor:
    """The whole state vector: both members of each conjugate pair."""
    return torch.cat([half, half.conj()], -1)


def dense(mixer: S4Mixer) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A, B, C~ and dt of every channel, with nothing of the family's own code."""
    eigenvalues = whole(torch.complex(-mixer.log_decay.exp(), mixer.frequency))
    p, b, c = (whole(torch.view_as_complex(weights)) for weights in (mixer.P, mixer.B, mixer.C))
    return torch.diag_embed(eigenvalues) - p[:, :, None] * p[:, None, :].conj(), b, c, mixer.log_dt.exp()


def scipy_kernel(mixer: S4Mixer, n_pos: int) -> torch.Tensor:
    """C Abar^k Bbar in every channel, discretised by scipy."""
    rows = []
    for matrix, b, c, dt in zip(*(tensor.detach().numpy() for tensor in dense(mixer)), strict=True):
        one, zero = np.eye(len(b)), np.zeros((1, 1))
        abar, bbar, *_ = cont2discrete((matrix, b[:, None], c[None], zero), dt, "bilinear")
        true_c = c @ np.linalg.inv(one - np.linalg.matrix_power(abar, mixer.cfg.kernel_length))
        rows.append([(true_c @ np.linalg.matrix_power(abar, k) @ bbar)[0].real for k in range(n_pos)])
    return torch.tensor(np.array(rows))


@torch.no_grad()
def oracle_errors(counter: S4, n_pos: int) -> Errors:
    """How far the first mixer is from scipy on each of its paths, in units of its output."""
    mixer, x = counter.blocks[0].mixer, row(n_pos, counter.cfg.d_model)
    response = scipy_kernel(mixer, n_pos)
    expected = mixer.D * x
    for k in range(n_pos):
        expected[:, k:] += response[:, k] * x[:, : n_pos - k]
    carry, streamed = mixer.initial_carry(x[:, 0]), []
    for at_pos in x.unbind(1):
        y, carry = mixer.step(at_pos, carry)
        streamed.append(y)
    outputs = {"fast": mixer.run_parallel(x), "open": mixer.run_with_states(x), "stream": torch.stack(streamed, 1)}
    return {path: float((y - expected).abs().max() / expected.abs().max()) for path, y in outputs.items()}


@pytest.mark.parametrize(("kernel_length", "n_pos"), [(24, 1), (24, 7), (24, 24), (24, 25), (25, 25), (9, 61), (1, 20)])
def test_every_path_agrees_with_scipy_for_rows_shorter_and_longer_than_the_kernel(
    kernel_length: int, n_pos: int
) -> None:
    errors = oracle_errors(lively(kernel_length=kernel_length), n_pos)
    assert max(errors.values()) < TOLERANCE, errors


def test_every_path_agrees_with_scipy_at_the_size_of_the_paper() -> None:
    errors = oracle_errors(lively(d_model=3, d_state=64, kernel_length=128), 128)
    assert max(errors.values()) < TOLERANCE, errors


def mutated(name: str, old: str, new: str) -> ModuleType:
    """A module with one piece of its source replaced."""
    source = inspect.getsource(importlib.import_module(name))
    assert source.count(old) == 1, old
    module = ModuleType(name)
    exec(compile(source.replace(old, new), name, "exec"), module.__dict__)
    return module


MUTANTS = {
    "the low-rank term's sign in the kernel": (
        "models.s4_kernel",
        "k_cb - k_cp * k_pb * cos / (1 + cos * k_pp)",
        "k_cb + k_cp * k_pb * cos / (1 - cos * k_pp)",
        {"fast"},
    ),
    "the low-rank term dropped from the kernel, which is S4D": (
        "models.s4_kernel",
        "k_cb - k_cp * k_pb * cos / (1 + cos * k_pp)",
        "k_cb",
        {"fast"},
    ),
    "the low-rank term's sign in the recurrence": (
        "models.s4_kernel",
        "- step.left *",
        "+ step.left *",
        {"open", "stream"},
    ),
    "the low-rank term dropped from the recurrence": (
        "models.s4_kernel",
        "- step.left *",
        "- 0 * step.left *",
        {"open", "stream"},
    ),
    "the convolution removed": ("models.s4", "[..., :n_pos].mT", "[..., :n_pos].mT * 0", {"fast"}),
    "the readout of the state removed": ("models.s4", "sum((-2, -1))", "sum((-2, -1)) * 0", {"open", "stream"}),
    "the truncated C read out as if it were the true one": (
        "models.s4",
        "readout = untruncate(step, _complex(self.C), self.cfg.kernel_length)",
        "readout = _complex(self.C)",
        {"open", "stream"},
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_with_scipy_notices(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, old, new, broken = MUTANTS[mutant]
    counter = lively(kernel_length=24)  # made before: its weights are those of the model that agrees
    assert max(oracle_errors(counter, 24).values()) < TOLERANCE
    module = mutated(name, old, new)
    if name == "models.s4_kernel":
        for function in ("compute_kernel", "advance", "untruncate"):
            monkeypatch.setattr(f"models.s4.{function}", getattr(module, function))
    else:
        changed = lively(module=module, kernel_length=24)
        changed.load_state_dict(counter.state_dict())
        counter = changed
    errors = oracle_errors(counter, 24)
    assert all((error > 1e-3) == (path in broken) for path, error in errors.items()), errors


def dense_mixer(mixer: S4Mixer, x: torch.Tensor) -> torch.Tensor:
    """The recurrence with dense matrices, one position at a time, under autograd."""
    matrix, b, c, dt = dense(mixer)
    one, half = torch.eye(b.shape[-1]), dt[:, None, None] / 2
    inverse = torch.linalg.inv(one - half * matrix)
    abar, bbar = inverse @ (one + half * matrix), torch.einsum("hij,hj->hi", inverse, dt[:, None] * b)
    c = torch.einsum("hj,hji->hi", c, torch.linalg.inv(one - torch.matrix_power(abar, mixer.cfg.kernel_length)))
    state, outputs = torch.zeros(len(x), *b.shape, dtype=b.dtype), []
    for at_pos in x.unbind(1):
        state = torch.einsum("hij,bhj->bhi", abar, state) + bbar * at_pos[..., None]
        outputs.append((state * c).sum(-1).real)
    return torch.stack(outputs, 1) + mixer.D * x


def written_out(counter: S4, token_ids: torch.Tensor) -> torch.Tensor:
    """The logits, from the structure as the paper's table of hyper-parameters has it."""
    resid = counter.embed.W_E[token_ids]
    for block in counter.blocks:
        normed = F.layer_norm(resid, resid.shape[-1:], block.ln.weight, block.ln.bias)
        value, gate = block.output(F.gelu(dense_mixer(block.mixer, normed))).chunk(2, -1)
        resid = resid + value * torch.sigmoid(gate)
    return resid @ counter.unembed.W_U


def gradients(counter: S4, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*counter.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(logits.pow(2).mean(), parameters), strict=True))


def gradient_errors(counter: S4, n_pos: int, hooks: list[tuple[str, Callable[..., None]]]) -> Errors:
    """How far each parameter's gradient is from that of the dense recurrence, in units of the latter."""
    token_ids, position_ids = tokens(n_pos)
    ours = gradients(counter, counter.run_with_hooks(token_ids, position_ids, fwd_hooks=hooks))
    theirs = gradients(counter, written_out(counter, token_ids))
    return {name: float((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()) for name in ours}


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("n_pos", [20, 24, 50])
def test_logits_and_gradients_are_those_of_a_dense_recurrence(n_pos: int, opened: bool) -> None:
    counter = lively(kernel_length=24)
    token_ids, position_ids = tokens(n_pos)
    torch.testing.assert_close(
        counter(token_ids, position_ids), written_out(counter, token_ids), atol=TOLERANCE, rtol=0
    )
    hooks = [(f"blocks.{layer}.mixer.hook_state", lambda x, hook: None) for layer in range(2)] if opened else []
    errors = gradient_errors(counter, n_pos, hooks)
    assert max(errors.values()) < 1e-8, errors


def test_the_comparison_of_gradients_notices_a_low_rank_term_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = lively(kernel_length=24)
    space = S4Mixer._build_space

    def without(mixer: S4Mixer) -> StateSpace:
        whole = space(mixer)
        return StateSpace(whole.diagonal, whole.low_rank.detach() + 0 * whole.low_rank, whole.input)

    monkeypatch.setattr(S4Mixer, "_build_space", without)
    errors = gradient_errors(counter, 24, [])
    assert {name for name, error in errors.items() if error > 1e-8} == {
        f"blocks.{layer}.mixer.{name}" for layer in range(2) for name in ("P", "log_dt")
    }


def test_the_initial_matrix_is_hippo_legs() -> None:
    n = np.arange(16)
    b = np.sqrt(2 * n + 1)
    matrix = np.where(n[:, None] > n, -np.outer(b, b), np.diag(-(n + 1.0)))
    low_rank = np.sqrt(n + 0.5)  # as a readout: what P'x is does not depend on the basis of the states
    abar, bbar, *_ = cont2discrete((matrix, b[:, None], low_rank[None], np.zeros((1, 1))), 0.05, "bilinear")
    expected = [(low_rank @ np.linalg.matrix_power(abar, k) @ bbar)[0] for k in range(40)]
    diagonal, p, into = (torch.from_numpy(vector)[None] for vector in hippo_legs(16))
    assert diagonal.shape == (1, 8)
    space = StateSpace(0.05 * diagonal, math.sqrt(0.05) * p, 0.05 * into)
    response = compute_kernel(space, truncate(discretise(space), p.conj(), 40), 40)
    np.testing.assert_allclose(response[0], expected, atol=TOLERANCE)


def test_a_fresh_counter_is_drawn_as_s4_draws_it() -> None:
    counter = build_counter(S4Config(TOKENS, d_model=512, n_layers=1, d_state=8), torch.Generator().manual_seed(0))
    assert isinstance(counter, S4)
    mixer = counter.double().blocks[0].mixer
    steps = mixer.log_dt.exp()
    assert 1e-3 <= steps.min() < 1.2e-3
    assert 0.08 < steps.max() <= 0.1
    assert abs(steps.log().mean() - math.log(1e-2)) < 0.2  # uniform in the logarithm
    true_c = untruncate(discretise(mixer._build_space()), torch.view_as_complex(mixer.C), 128)
    assert abs(true_c.abs().square().mean() - 1) < 0.1
    assert abs(mixer.D.std() - 1) < 0.1
    head = counter.unembed.W_U
    assert head.abs().max().item() == pytest.approx(512**-0.5, rel=0.01)
    assert head.std().item() == pytest.approx((3 * 512) ** -0.5, rel=0.05)


def test_the_initial_b_is_clipped_in_the_basis_that_lapack_gives() -> None:
    """An independent construction: HiPPO's A and B, torch's eigh, the imaginary part of V*B within +-2."""
    n = torch.arange(64, dtype=torch.float64)
    b = (2 * n + 1).sqrt()
    matrix = torch.where(n[:, None] > n, -torch.outer(b, b), torch.diag(-(n + 1)))
    low_rank = (n + 0.5).sqrt()
    frequencies, vectors = torch.linalg.eigh(-1j * (matrix + torch.outer(low_rank, low_rank)))
    vectors = vectors[:, frequencies > 0]
    into = vectors.mH @ b.to(vectors.dtype)
    clipped = torch.complex(into.real, into.imag.clamp(-2, 2))
    p = vectors.mH @ low_rank.to(vectors.dtype)
    counter = build_counter(S4Config(TOKENS, d_model=2, n_layers=1), torch.Generator().manual_seed(0))
    mixer = counter.blocks[0].mixer
    ours_b, ours_p = (torch.view_as_complex(part.detach())[1] for part in (mixer.B, mixer.P))
    # Neither depends on the phase of an eigenvector.
    torch.testing.assert_close(ours_p.conj() * ours_b, (p.conj() * clipped).to(ours_b.dtype), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours_b.abs(), clipped.abs().to(ours_b.real.dtype), rtol=1e-5, atol=1e-5)
    assert torch.view_as_real(into).square().mean().sqrt() > 5
    assert mixer.B.square().mean().sqrt().item() == pytest.approx(1.08, abs=0.02)


def test_rows_of_any_length_see_the_same_kernel() -> None:
    mixer = lively(kernel_length=16).blocks[0].mixer
    longest = mixer.kernel(1000)
    for n_pos in (1, 15, 16, 17, 32, 33, 500):
        torch.testing.assert_close(mixer.kernel(n_pos), longest[:, :n_pos], atol=1e-12, rtol=0)


def test_states_are_real_views_of_conjugate_pairs() -> None:
    counter = lively(kernel_length=24)
    _, cache = counter.run_with_cache(*tokens(10))
    states = cache["blocks.0.mixer.hook_state"]
    assert states.shape == (3, 10, 4, 8, 2)
    bbar = discretise(counter.blocks[0].mixer._build_space()).input
    first = counter.blocks[0].ln(cache["resid_pre", 0])[:, 0]
    torch.testing.assert_close(torch.view_as_complex(states[:, 0].contiguous()), bbar * first[..., None])


def test_gradients_reach_a_hook_at_the_states() -> None:
    counter = lively(kernel_length=24)
    seen: list[torch.Tensor] = []
    with counter.hooks(bwd_hooks=[("blocks.0.mixer.hook_state", lambda gradient, hook: seen.append(gradient))]):
        counter(*tokens(10)).pow(2).mean().backward()
    assert seen[0].shape == (3, 10, 4, 8, 2)
    assert seen[0].abs().max() > 0


@pytest.mark.parametrize("n_pos", [128, 4096])
def test_float32_keeps_to_float64(n_pos: int) -> None:
    counter = lively(torch.float32, d_model=8, d_state=64, n_layers=1)
    mixer, x = counter.blocks[0].mixer, row(n_pos, 8, torch.float32)
    with torch.no_grad():
        fast, opened, exact = mixer.run_parallel(x), mixer.run_with_states(x), mixer.double().run_parallel(x.double())
    assert fast.dtype == opened.dtype == torch.float32
    for y in (fast, opened):
        assert float((y - exact).abs().max() / exact.abs().max()) < 1e-5


EXTREME = [("log_decay", 20), ("log_decay", -20), ("log_dt", 12), ("log_dt", -15), ("P", 100), ("P", 0)]  # both agree
ABSURD = [("log_decay", 35), ("log_decay", -60), ("log_dt", 40), ("log_dt", -40), ("P", 1e8), ("frequency", 1e12)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "value"), EXTREME + ABSURD)
def test_extreme_dynamics_are_finite_and_within_reason_alike_on_both_paths(
    name: str, value: float, dtype: torch.dtype
) -> None:
    mixer, x = lively(dtype, d_model=8, d_state=64, n_layers=1).blocks[0].mixer, row(300, 8, dtype)
    with torch.no_grad():
        getattr(mixer, name).fill_(value)
    fast, opened = mixer.run_parallel(x), mixer.run_with_states(x)
    if (name, value) in EXTREME:
        scale = fast.abs().max()
        torch.testing.assert_close(fast / scale, opened / scale, atol=1e-4, rtol=0)
    # In units of the output: its own square may be beyond float32, which says nothing of the gradients.
    sum((y / y.detach().abs().max()).pow(2).mean() for y in (fast, opened)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())
    assert fast.isfinite().all()
    assert opened.isfinite().all()


def test_extreme_inputs_give_finite_logits() -> None:
    counter = lively(torch.float32, kernel_length=24)
    with torch.no_grad():
        counter.embed.W_E.mul_(1e15)
    assert counter(*tokens(60)).isfinite().all()
    assert counter.run_with_cache(*tokens(60))[0].isfinite().all()


def kept_for_backward(counter: S4, n_pos: int) -> int:
    """Bytes that autograd saves in one forward."""
    sizes: dict[int, int] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        logits = counter(*tokens(n_pos, 1))
    assert logits.isfinite().all()
    logits.mean().backward()
    return sum(sizes.values())


def test_a_row_of_4096_tokens_keeps_no_more_memory_than_its_length_accounts_for() -> None:
    counter = lively(torch.float32, d_model=16, d_state=64).train()
    short, long = kept_for_backward(counter, 512), kept_for_backward(counter, 4096)
    assert long < 8.5 * short
    assert long < 200e6
    assert all(parameter.grad.isfinite().all() for parameter in counter.parameters())


def test_dropout_works_in_training_alone_and_leaves_the_residual_stream() -> None:
    counter = lively(dropout=0.5, kernel_length=24)
    assert torch.equal(counter(*tokens(10)), counter(*tokens(10)))
    counter.train()
    torch.manual_seed(0)
    _, cache = counter.run_with_cache(*tokens(10))
    untouched = cache["resid_post", 0] == cache["resid_pre", 0]
    assert 0.3 < untouched.double().mean() < 0.7
    assert (untouched.all(1) | ~untouched.any(1)).all()  # a channel of a row is dropped everywhere or nowhere
    assert not torch.equal(counter(*tokens(10)), counter(*tokens(10)))


def test_dropout_stands_before_and_after_the_gelu() -> None:
    counter = lively(dropout=0.5, kernel_length=24)
    block = counter.train().blocks[0]
    x = torch.randn(64, 20, counter.cfg.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen: list[torch.Tensor] = []
    handle = block.output.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    torch.manual_seed(0)
    block(x)
    handle.remove()
    kept = seen[0] != 0
    assert kept.double().mean() == pytest.approx(0.25, abs=0.01)  # both masks must let it pass
    expected = 2 * torch.nn.functional.gelu(2 * block.mixer(block.ln(x)))
    torch.testing.assert_close(seen[0][kept], expected[kept])


@pytest.mark.parametrize(("lr", "ssm_lr"), [(1e-2, 1e-3), (1e-4, 1e-4)])
def test_kernels_have_an_optimiser_group_of_their_own(lr: float, ssm_lr: float) -> None:
    counter = lively()
    names = {id(parameter): name for name, parameter in counter.named_parameters()}
    rest, ssm = counter.parameter_groups(lr, 0.01)
    assert (rest["lr"], rest["weight_decay"], ssm["lr"], ssm["weight_decay"]) == (lr, 0.01, ssm_lr, 0)
    dynamics = [names[id(parameter)] for parameter in ssm["params"]]
    assert {name.rsplit(".", 1)[1] for name in dynamics} == {"log_decay", "frequency", "P", "B", "C", "log_dt"}
    assert len(dynamics) == 12
    assert sorted(dynamics + [names[id(parameter)] for parameter in rest["params"]]) == sorted(names.values())
    counter.cfg = replace(counter.cfg, state_lr=5e-3, state_decay=0.3)
    _, ssm = counter.parameter_groups(lr, 0.01)
    assert (ssm["lr"], ssm["weight_decay"]) == (min(lr, 5e-3), 0.3)


@pytest.mark.parametrize(
    "wrong", [{"d_state": 7}, {"d_state": 0}, {"kernel_length": 0}, {"dt_min": 0.2}, {"dt_min": 0.0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CountLensError, match=next(iter(wrong))):
        S4Config(TOKENS, **wrong)


@torch.no_grad()
def test_transition_matrices_are_what_a_position_does_to_a_state() -> None:
    mixer = lively().blocks[0].mixer
    x = row(2, mixer.cfg.d_model)[:, 0]
    state = torch.randn(2, mixer.cfg.d_model, mixer.cfg.d_state // 2, 2, dtype=torch.float64)
    linear = mixer.transition(state, x, *mixer.constants()) - mixer.transition(0 * state, x, *mixer.constants())
    by_matrix = torch.einsum("dij,bdj->bdi", mixer.transition_matrices(), state.flatten(2))
    torch.testing.assert_close(by_matrix, linear.flatten(2), atol=1e-10, rtol=0)
