"""RWKV-6's recurrence in chunks against a loop over positions, above all where decay is strong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from models.rwkv6_recurrence import recurrence


def step_by_step(r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, u: torch.Tensor) -> Any:
    state, out = torch.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None]), []
    for pos in range(r.shape[1]):
        now = k[:, pos, :, :, None] * v[:, pos, :, None]
        out.append((r[:, pos, :, :, None] * (state + u[..., None] * now)).sum(-2))
        state = log_decay[:, pos, :, :, None].exp() * state + now
    return torch.stack(out, 1)


def decays(kind: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Logs of decays, as large as the mixer makes them."""
    log_log = {
        "weak": torch.randn(shape, generator=generator) - 6,
        "all strong": torch.full(shape, 8.0),
        "rather strong": 3 + 0.2 * torch.randn(shape, generator=generator),
        "strong now and then": torch.where(torch.rand(shape, generator=generator) < 0.2, 8.0, -6.0),
        "anything": torch.rand(shape, generator=generator) * 58 - 50,
    }[kind]
    return -log_log.double().exp()


@pytest.mark.parametrize("n_pos", [1, 7, 16, 17, 50])
@pytest.mark.parametrize("kind", ["weak", "all strong", "rather strong", "strong now and then", "anything"])
def test_chunks_equal_a_loop_however_strong_the_decay(kind: str, n_pos: int, generator: torch.Generator) -> None:
    shape = (2, n_pos, 2, 16)
    inputs = [torch.randn(shape, generator=generator).double() for _ in range(3)]
    inputs += [decays(kind, shape, generator), torch.randn(2, 16, generator=generator).double()]
    probe = torch.randn(shape, generator=generator).double()
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        results = []
        for function, precision in ((step_by_step, torch.float64), (recurrence, dtype)):
            leaves = [tensor.to(precision, copy=True).requires_grad_() for tensor in inputs]
            y = function(*leaves)
            gradients = list(torch.autograd.grad(y, leaves, probe.to(precision), materialize_grads=True))
            gradients[3] *= leaves[3].detach()  # of log(-log(decay)), which is what parameters make
            results.append([y.detach(), *gradients])
        for expected, got in zip(*results, strict=True):
            scale = expected.abs().max().clamp(min=1)
            torch.testing.assert_close(got.double() / scale, expected / scale, atol=tolerance, rtol=0)


def test_strong_decay_is_a_trap_for_quotients_of_running_products(generator: torch.Generator) -> None:
    """Why the chunks are cut in halves: the usual form of such chunks fails on what the test above gives them."""
    shape = (2, 16, 2, 16)
    r, k, v = torch.randn(3, *shape, generator=generator)
    log_decay = decays("rather strong", shape, generator).float()
    running = log_decay.cumsum(1)
    weights = torch.einsum("bthd,bshd->bhts", r * (running - log_decay).exp(), k * (-running).exp()).tril(-1)
    assert not torch.einsum("bhts,bshd->bthd", weights, v).isfinite().all()
    assert recurrence(r, k, v, log_decay, torch.ones(2, 16)).isfinite().all()


def bytes_kept_for_backward(forward: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    return sum(storages.values()), result


def test_memory_grows_with_length_and_stays_below_a_trajectory(generator: torch.Generator) -> None:
    kept = []
    for n_pos in (1024, 4096):
        r, k, v, log_log = (torch.randn(1, n_pos, 1, 64, generator=generator).requires_grad_() for _ in range(4))
        args = r, k, v, -log_log.exp(), torch.zeros(1, 64, requires_grad=True)
        n_bytes, y = bytes_kept_for_backward(lambda args=args: recurrence(*args))
        assert y.isfinite().all()
        kept.append(n_bytes)
    assert kept[1] < 4.1 * kept[0]
    assert kept[1] < 0.5 * 4096 * 64 * 64 * 4
