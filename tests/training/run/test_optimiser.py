"""SOAP against an implementation that is not ours, what it is good for, and resuming a run that it trains."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.oracles import install_oracle
from training.config import Algorithm, RunConfig
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.run.optimiser import ALGORITHMS
from training.run.soap import LARGEST_SIDE, SOAP, STEPS_BETWEEN_BASES, empty_state

STEPS = 3 * STEPS_BETWEEN_BASES


@pytest.fixture(scope="session")
def oracle() -> Path:
    """A folder with another implementation of SOAP, installed once and kept."""
    return install_oracle("pytorch-optimizer==4.1.0")


class Weights(nn.Module):
    """Weights of one, two and three dimensions, each of which changes the output."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shapes = {"heads": (2, 5, 3), "matrix": (6, 4), "bias": (4,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)))

    def forward(self, rows: Tensor) -> Tensor:
        mixed = torch.einsum("bd,hde->bhe", rows, self.heads).flatten(1)
        return torch.tanh(mixed @ self.matrix + self.bias) - 0.5


def train_weights(build: Callable[..., torch.optim.Optimizer], weight_decay: float = 0.3) -> list[Tensor]:
    model = Weights()
    optimiser = build(model.parameters(), lr=0.01, betas=(0.95, 0.99), weight_decay=weight_decay)
    for rows in torch.randn(STEPS, 8, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64):
        optimiser.zero_grad()
        model(rows).square().sum().backward()
        optimiser.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.slow
def test_soap_takes_the_steps_of_another_implementation(oracle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(oracle))
    theirs = train_weights(import_module("pytorch_optimizer").SOAP)
    for parameter, other in zip(train_weights(SOAP), theirs, strict=True):
        torch.testing.assert_close(parameter, other)
    without_decay = train_weights(SOAP, weight_decay=0.0)  # the comparison can fail
    assert (without_decay[0] - theirs[0]).abs().max() > 0.01


def loss_after_steps(build: Callable[..., torch.optim.Optimizer]) -> float:
    """The loss on a quadratic whose steep and flat directions are mixtures of weights."""
    generator = torch.Generator().manual_seed(2)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=generator)).Q
    curvature = turn * torch.logspace(0, 2, 12) @ turn.T
    weight = nn.Parameter(torch.randn(12, 12, generator=generator))
    optimiser = build([weight], lr=0.03, betas=(0.95, 0.99), weight_decay=0.0)
    for _ in range(300):
        optimiser.zero_grad()
        loss = (weight.T @ curvature @ weight).trace()
        loss.backward()
        optimiser.step()
    return loss.item()


def test_soap_is_for_weights_that_act_together() -> None:
    assert loss_after_steps(SOAP) < 0.1 * loss_after_steps(torch.optim.AdamW)


def test_a_vector_is_trained_as_by_adam() -> None:
    """But for the first step, in which SOAP only finds bases."""
    weights = []
    for build, steps in ((SOAP, 6), (torch.optim.AdamW, 5)):
        weight = nn.Parameter(torch.linspace(1, 2, 5))
        optimiser = build([weight], lr=0.1, betas=(0.95, 0.99), weight_decay=0.0)
        for _ in range(steps):
            weight.grad = torch.arange(5) - 2.0
            optimiser.step()
        weights.append(weight.detach())
    torch.testing.assert_close(*weights)


def test_long_sides_are_not_rotated() -> None:
    state = empty_state(torch.zeros(3, LARGEST_SIDE + 1))
    assert sorted(state) == ["basis_0", "exp_avg", "exp_avg_sq", "gram_0", "step"]


def test_every_algorithm_of_the_command_line_can_be_built() -> None:
    assert list(ALGORITHMS) == list(get_args(Algorithm))


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_stopped_run_goes_on_bit_for_bit(algorithm: Algorithm, tiny: RunConfig, tmp_path: Path) -> None:
    """Stopped before and after a basis was turned, and compared with a run that was not."""
    config = replace(tiny, optimiser=replace(tiny.optimiser, algorithm=algorithm, steps=2 * STEPS))
    whole = Trainer(RunFolder.create(tmp_path / "whole", config))
    parts = Trainer(RunFolder.create(tmp_path / "parts", config))
    for step in range(STEPS):
        whole.advance()
        parts.advance()
        if step in (0, STEPS_BETWEEN_BASES - 1, STEPS_BETWEEN_BASES + 3):
            parts.save_state()
            parts = Trainer(parts.run)
    weights, resumed = (trainer.parts.counter.state_dict() for trainer in (whole, parts))
    for name, tensor in weights.items():
        assert torch.equal(tensor, resumed[name]), name


@pytest.mark.parametrize("seed", range(20))  # in 32 bits, decompositions of a fifth of these do not converge
def test_bases_are_found_of_tiny_gradients_too(seed: int) -> None:
    """Most rows of this embedding are not used, as those of numbers that a batch has not."""
    generator = torch.Generator().manual_seed(seed)
    weight = nn.Parameter(torch.zeros(103, 64))
    used = torch.randperm(103, generator=generator)[:37]
    weight.grad = torch.zeros(103, 64)
    weight.grad[used] = 1e-10 * torch.logspace(0, -6, 37)[:, None] * torch.randn(37, 64, generator=generator)
    optimiser = SOAP([weight])
    for _ in range(2):
        optimiser.step()
    assert weight[used].abs().max() > 0
    assert weight.isfinite().all()
