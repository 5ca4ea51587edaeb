"""How the benchmarks here measure: contenders take turns, so that other load on the machine affects all of them."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

TURNS = 30


def forward_and_backward(module: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """One pass through a module and back, from a fixed input."""

    def call() -> None:
        out = module(x)
        out = out[0] if isinstance(out, tuple) else out
        out.backward(torch.ones_like(out))
        module.zero_grad(set_to_none=True)

    return call


def race(contenders: dict[str, Callable[[], None]], turns: int = TURNS) -> dict[str, tuple[float, float]]:
    """For each contender its median milliseconds, and the median ratio of its time to the first contender's."""
    for call in contenders.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            times[name].append(1000 * (time.perf_counter() - start))
    first = next(iter(times.values()))
    return {
        name: (statistics.median(taken), statistics.median(a / b for a, b in zip(taken, first, strict=True)))
        for name, taken in times.items()
    }
