"""SOAP: Adam in the eigenbases of Shampoo's preconditioners (Vyas et al., 2024, arXiv:2409.11321, algorithm 3).

Adam scales each weight by itself. SOAP rotates the gradient of a weight matrix first, so that its rows and its columns
are uncorrelated, and then does as Adam. Where weights act together, as those of a plain RNN do, that is far faster per
step, for a few matrix products more. Vectors have no basis of their own: for them SOAP is Adam.

All of the state is tensors, so that a run that is stopped resumes from a file, bit for bit.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

LARGEST_SIDE = 1024  # longer sides of a weight are not rotated: decompositions take their length to the power of three
STEPS_BETWEEN_BASES = 10


class SOAP(torch.optim.Optimizer):
    """Adam in slowly changing eigenbases, with decoupled weight decay. The first step only finds the bases."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        lr: float = 3e-3,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"betas": betas, "eps": eps, "lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        _, beta2 = group["betas"]
        if not state:
            state.update(empty_state(parameter))
            _track(gradient, state, beta2)
            for axis in _rotated_axes(parameter):
                state[f"basis_{axis}"] = _as_stored(_eigenvectors(state[f"gram_{axis}"]))
            return
        state["step"] += 1
        steps = int(state["step"])
        parameter.sub_(_adam_step(gradient, state, steps, group))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        _track(gradient, state, beta2)
        if steps % STEPS_BETWEEN_BASES == 0:
            for axis in _rotated_axes(parameter):
                _turn_basis(axis, state)


def empty_state(parameter: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first step: its moments, and a gram matrix and a basis per rotated side."""
    state = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
    for axis in _rotated_axes(parameter):
        side = parameter.shape[axis]
        state |= {f"{name}_{axis}": parameter.new_zeros(side, side) for name in ("gram", "basis")}
    return state


def _rotated_axes(parameter: Tensor) -> list[int]:
    if parameter.ndim < 2:
        return []
    return [axis for axis, side in enumerate(parameter.shape) if side <= LARGEST_SIDE]


def _adam_step(gradient: Tensor, state: dict[str, Tensor], steps: int, group: dict[str, Any]) -> Tensor:
    """Adam's step, computed in the eigenbases and rotated back."""
    beta1, beta2 = group["betas"]
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(gradient, 1 - beta1)
    square.lerp_(_rotate(gradient, state).square(), 1 - beta2)
    rate = group["lr"] * (1 - beta2**steps) ** 0.5 / (1 - beta1**steps)
    return rate * _rotate(_rotate(mean, state) / (square.sqrt() + group["eps"]), state, back=True)


def _rotate(tensor: Tensor, state: dict[str, Tensor], back: bool = False) -> Tensor:
    """The tensor in the eigenbases of its sides or, if `back`, out of them."""
    for axis in _rotated_axes(tensor):
        tensor = torch.tensordot(tensor, state[f"basis_{axis}"], dims=([axis], [int(back)])).movedim(-1, axis)
    return tensor


def _track(gradient: Tensor, state: dict[str, Tensor], beta: float) -> None:
    """Adds a gradient to the moving averages of its gram matrices."""
    for axis in _rotated_axes(gradient):
        others = [other for other in range(gradient.ndim) if other != axis]
        state[f"gram_{axis}"].lerp_(torch.tensordot(gradient, gradient, dims=(others, others)), 1 - beta)


def _eigenvectors(gram: Tensor) -> Tensor:
    """The eigenvectors of a gram matrix as columns, by decreasing eigenvalue.

    In 64 bits: in 32 the decomposition does not converge where gradients are tiny and most rows of an embedding have
    none.
    """
    return torch.linalg.eigh(gram.cpu().double()).eigenvectors.flip(1).to(gram)


def _turn_basis(axis: int, state: dict[str, Tensor]) -> None:
    """Brings the basis of a side closer to the eigenvectors of its gram matrix: one round of power iteration.

    The vectors are ordered by their eigenvalues, and the second moments along with them.
    """
    basis = state[f"basis_{axis}"]
    product = state[f"gram_{axis}"] @ basis
    order = (basis * product).sum(0).argsort(descending=True)
    state["exp_avg_sq"] = state["exp_avg_sq"].index_select(axis, order)
    state[f"basis_{axis}"] = _as_stored(torch.linalg.qr(product[:, order]).Q)


def _as_stored(basis: Tensor) -> Tensor:
    """Row by row, as a file returns it: products of matrices that lie otherwise in memory are rounded otherwise."""
    return basis.contiguous()
