"""Linear recurrences: against a plain loop, to second derivatives, mapped, in chunks of any size, in bounded memory."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.config import MambaConfig
from models.mamba_scan import linear_scan, selective_scan

Draw = tuple[Tensor, ...]


def drawn(*shapes: tuple[int, ...]) -> Draw:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def looped(decay: Tensor, writes: Tensor, initial: Tensor) -> tuple[Tensor, Tensor]:
    states = [initial]
    for decay_t, write in zip(decay, writes, strict=True):
        states.append(decay_t * states[-1] + write)
    return torch.stack(states[1:]), states[-1]


def selective_inputs(n_pos: int, batch: int = 2, d_inner: int = 6, d_state: int = 4) -> Draw:
    dt, x, A, B, C = drawn(
        (n_pos, batch, d_inner), (n_pos, batch, d_inner), (d_inner, d_state), *[(n_pos, batch, d_state)] * 2
    )
    return dt.sigmoid(), x, -A.exp(), B, C


def selective_loop(dt: Tensor, x: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    decay = torch.exp(dt[..., None] * A)
    states, _ = looped(decay, (dt * x)[..., None] * B[:, :, None], torch.zeros_like(decay[0]))
    return torch.einsum("tbdn,tbn->tbd", states, C)


@pytest.mark.parametrize("n_pos", [1, 2, 9])
def test_the_scan_is_the_loop(n_pos: int) -> None:
    inputs = drawn((n_pos, 2, 3), (n_pos, 2, 3), (2, 3))
    for got, expected in zip(linear_scan(*inputs), looped(*inputs), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("n_pos", [1, 4])
def test_first_and_second_derivatives_are_those_of_finite_differences(n_pos: int) -> None:
    inputs = tuple(tensor.requires_grad_() for tensor in drawn((n_pos, 2, 2), (n_pos, 2, 2), (2, 2)))
    assert torch.autograd.gradcheck(linear_scan, inputs)
    assert torch.autograd.gradgradcheck(linear_scan, inputs)
    # The states alone, or the last one alone, as whoever drops the other result has it.
    assert torch.autograd.gradcheck(lambda *args: linear_scan(*args)[0], inputs)
    assert torch.autograd.gradcheck(lambda *args: linear_scan(*args)[1], inputs)


def test_the_derivatives_of_the_selective_scan_are_those_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MambaConfig, "scan_elements", 2 * 1 * 2 * 2)  # two positions, so that a gradient crosses chunks
    inputs = tuple(tensor.requires_grad_() for tensor in selective_inputs(5, batch=1, d_inner=2, d_state=2))
    assert torch.autograd.gradcheck(selective_scan, inputs)
    assert torch.autograd.gradgradcheck(selective_scan, inputs)


@pytest.mark.parametrize("chunk", [1, 100, 2**30])
def test_chunks_of_any_size_give_the_same(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MambaConfig, "scan_elements", chunk)
    inputs = selective_inputs(11)
    torch.testing.assert_close(selective_scan(*inputs), selective_loop(*inputs), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (2, 0, 1), (None, 1, None), (0, None, None)])
def test_mapping_the_scan_is_a_loop_of_scans(in_dims: tuple[int | None, ...]) -> None:
    shapes = [[5, 2], [5, 2], [2]]
    for shape, dim in zip(shapes, in_dims, strict=True):
        if dim is not None:
            shape.insert(dim, 3)
    inputs = drawn(*map(tuple, shapes))
    rows = [
        [tensor if dim is None else tensor.select(dim, row) for tensor, dim in zip(inputs, in_dims, strict=True)]
        for row in range(3)
    ]
    mapped = torch.vmap(linear_scan, in_dims)(*inputs)
    for got, expected in zip(mapped, zip(*(linear_scan(*row) for row in rows), strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(expected))


def test_gradients_of_each_example_come_from_one_mapped_call() -> None:
    dt, x, A, B, C = selective_inputs(7, batch=3)

    def loss(A: Tensor, *row: Tensor) -> Tensor:
        dt, x, B, C = (tensor[:, None] for tensor in row)
        return selective_scan(dt, x, A, B, C).square().sum()

    mapped = torch.vmap(torch.func.grad(loss), (None, 1, 1, 1, 1))(A, dt, x, B, C)
    for row in range(3):
        leaf = A.clone().requires_grad_()
        selective_loop(
            dt[:, row, None], x[:, row, None], leaf, B[:, row, None], C[:, row, None]
        ).square().sum().backward()
        torch.testing.assert_close(mapped[row], leaf.grad, atol=1e-10, rtol=1e-10)


class LiveElements(TorchDispatchMode):
    """Counts the elements of all tensors that are alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self._add(tensor.untyped_storage(), tensor.element_size())
        return result

    def _add(self, storage: torch.UntypedStorage, element_size: int) -> None:
        pointer, size = storage.data_ptr(), storage.nbytes() // element_size
        self.known.add(pointer)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, pointer, size)

    def _remove(self, pointer: int, size: int) -> None:
        self.known.discard(pointer)
        self.live -= size


def test_without_gradients_a_long_row_keeps_no_trajectory() -> None:
    inputs = tuple(tensor.float() for tensor in selective_inputs(4096, batch=4, d_inner=64, d_state=32))
    trajectory = 4096 * 4 * 64 * 32
    with torch.no_grad(), LiveElements() as without:
        selective_scan(*inputs)
    assert without.peak < trajectory / 4
    for tensor in inputs:
        tensor.requires_grad_()
    with LiveElements() as kept:
        output = selective_scan(*inputs)
    assert trajectory < kept.live < 2.5 * trajectory  # decays and states, and nothing else of that size
    del output
