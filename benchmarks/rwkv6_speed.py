"""RWKV-6's recurrence in chunks beside a loop over positions: alone, and inside a counter.

    python benchmarks/rwkv6_speed.py

One thread, forward and backward, the same inputs; the two take turns, so that whatever else the machine does hits
both. Prints the median milliseconds of each and the median of the ratios of neighbouring turns.
"""

from collections.abc import Callable

import torch
from side_by_side import race

import models.rwkv6
from models import build_counter
from models.config import RWKV6Config
from models.rwkv6_recurrence import recurrence

SHAPES = [(64, 50), (64, 128), (128, 50), (128, 128)]  # d_model, length
BATCH, N_LAYERS, TURNS = 32, 2, 15


def loop(
    r: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, bonus: torch.Tensor
) -> torch.Tensor:
    """The same outputs, position by position, as leanly as a loop goes (indexing [:, pos] would be slower still)."""
    state, out = torch.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None]), []
    rows = zip(r.unbind(1), k.unbind(1), v.unbind(1), log_decay.exp().unbind(1), strict=True)
    for r_now, k_now, v_now, decay in rows:
        new = k_now[..., None] * v_now[..., None, :]
        out.append((r_now[..., None, :] @ torch.addcmul(state, bonus[..., None], new)).squeeze(-2))
        state = torch.addcmul(new, decay[..., None], state)
    return torch.stack(out, 1)


def alone(d_model: int, length: int, function: Callable[..., torch.Tensor]) -> Callable[[], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    r, k, v, log_log = torch.randn(4, BATCH, length, d_model // 64, 64, generator=generator).unbind(0)
    inputs = [r, k, v, -(log_log - 3).exp(), torch.randn(d_model // 64, 64, generator=generator)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    return lambda: function(*inputs)


def inside(d_model: int, length: int, function: Callable[..., torch.Tensor]) -> Callable[[], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    counter = build_counter(RWKV6Config(103, d_model=d_model, n_layers=N_LAYERS), generator)
    for parameter in counter.parameters():  # fresh blocks add nothing
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    token_ids = torch.randint(0, 103, (BATCH, length), generator=generator)

    def forward() -> torch.Tensor:
        models.rwkv6.recurrence = function
        return counter(token_ids, token_ids)

    return forward


def and_backward(forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
    return lambda: forward().square().mean().backward()


def main() -> None:
    torch.set_num_threads(1)
    print(f"batch {BATCH}, one thread, forward and backward, {TURNS} turns")
    print(f"{'':>20} {'d_model':>8} {'length':>7} {'chunks ms':>10} {'loop ms':>9} {'loop / chunks':>14}")
    for what, build in (("recurrence", alone), (f"counter, {N_LAYERS} layers", inside)):
        for d_model, length in SHAPES:
            chunks, loops = build(d_model, length, recurrence), build(d_model, length, loop)
            torch.testing.assert_close(chunks(), loops(), atol=1e-3, rtol=1e-4)
            times = race({"chunks": and_backward(chunks), "loop": and_backward(loops)}, TURNS)
            (ours, _), (theirs, ratio) = times["chunks"], times["loop"]
            print(f"{what:>20} {d_model:8} {length:7} {ours:10.1f} {theirs:9.1f} {ratio:14.1f}")


if __name__ == "__main__":
    main()
