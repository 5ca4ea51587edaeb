"""Training on an accelerator: the losses and gradients of the CPU, and no value that the host waits for.

Losses and gradients may differ by 1e-4, relative to the largest gradient of a parameter: on an accelerator torch takes
other paths to the same sums (attention, convolution, rows that are equal), and three steps of Adam add to that.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoint import load_counter
from models.families import FAMILIES
from models.schemes import SCHEMES
from models.transformer_block import LayerNorm
from tests.accelerator.device import NAME, host_reads
from training.config import (
    DeviceOptions,
    ModelOptions,
    OptimiserOptions,
    RecordOptions,
    RunConfig,
    TaskOptions,
    TrainConfig,
)
from training.evaluate import evaluate
from training.policies import POLICIES, Policy
from training.presets import resolve, task_of
from training.run.folder import RunFolder
from training.run.loop import Trainer, train
from training.sweep.timing import time_run
from training.tasks import TASKS

ARCHITECTURES = [*SCHEMES, *(family for family in FAMILIES if family != "transformer")]
TOLERANCE = 1e-4


def slow_unless(quick: bool, value: str) -> Any:
    """A parameter of a test that `make test` runs only if it is quick."""
    return pytest.param(value, marks=[] if quick else pytest.mark.slow)


def make_config(architecture: str, task: str = "helper", device: str = "auto", **model: Any) -> RunConfig:
    family, position = ("transformer", architecture) if architecture in SCHEMES else (architecture, None)
    # No dropout, which some recipes have: its random stream is the device's own.
    model = {"n_layers": 2, "d_model": 16} | ({"n_heads": 2} if position else {"dropout": 0.0}) | model
    return resolve(
        TrainConfig(
            data=TaskOptions(task=task, train_length=6, ood_length=12),
            model=ModelOptions(family=family, position=position, **model),
            optimiser=OptimiserOptions(steps=6, warmup_steps=1, batch_size=4),
            record=RecordOptions(eval_every=3, eval_rows=8),
            hardware=DeviceOptions(device=device),  # type: ignore[arg-type]
        )
    )


def take_steps(folder: Path, config: RunConfig) -> tuple[list[float], dict[str, Tensor], list[str]]:
    """Three steps: their losses, the last gradients, and at what the host waited for the device meanwhile."""
    trainer = Trainer(RunFolder.create(folder / config.hardware.device, config))
    with trainer.writer:
        host_reads.clear()
        losses = [trainer.advance() for _ in range(3)]
        reads = list(host_reads)
    counter = trainer.parts.counter
    assert counter.device.type == (NAME if config.hardware.device == "auto" else "cpu")
    gradients = {name: parameter.grad for name, parameter in counter.named_parameters()}
    return [float(loss) for loss in losses], {n: g.cpu() for n, g in gradients.items() if g is not None}, reads


def check_steps(folder: Path, architecture: str, task: str = "helper") -> None:
    """Three steps on the accelerator are those on the CPU, and the host reads nothing."""
    expected_losses, expected, _ = take_steps(folder, make_config(architecture, task, "cpu"))
    losses, gradients, reads = take_steps(folder, make_config(architecture, task))
    assert reads == []
    assert losses == pytest.approx(expected_losses, rel=TOLERANCE)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=TOLERANCE * max(scale, TOLERANCE), msg=name)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_step_is_that_of_the_cpu_and_waits_for_nothing(architecture: str, tmp_path: Path) -> None:
    check_steps(tmp_path, architecture)


@pytest.mark.parametrize("task", [slow_unless(task == "selective", task) for task in TASKS])
def test_rows_of_a_task_are_drawn_on_the_device(task: str, tmp_path: Path) -> None:
    check_steps(tmp_path, "nope", task)


def plant_copy_to_host(patch: pytest.MonkeyPatch) -> None:
    normalise = LayerNorm.forward
    patch.setattr(LayerNorm, "forward", lambda self, x: normalise(self, x.cpu()))


def plant_round_trip(patch: pytest.MonkeyPatch) -> None:
    normalise = LayerNorm.forward
    patch.setattr(LayerNorm, "forward", lambda self, x: normalise(self, x.cpu().to(x.device)))


def plant_value_read_by_host(patch: pytest.MonkeyPatch) -> None:
    normalise = LayerNorm.forward
    patch.setattr(LayerNorm, "forward", lambda self, x: normalise(self, x * float(x.isfinite().all())))


def plant_positions_without_device(patch: pytest.MonkeyPatch) -> None:
    def contiguous(lengths: Tensor, n_pos: int, max_position: int, generator: torch.Generator) -> Tensor:
        return torch.arange(n_pos).expand(len(lengths), -1)

    patch.setitem(POLICIES, "shifted", Policy(contiguous))


def plant_random_numbers_without_device(patch: pytest.MonkeyPatch) -> None:
    def shifted(lengths: Tensor, n_pos: int, max_position: int, generator: torch.Generator) -> Tensor:
        return torch.rand(len(lengths), n_pos, generator=generator).argsort(1).to(lengths.device)

    patch.setitem(POLICIES, "shifted", Policy(shifted))


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[type[Exception], str]] = {
    plant_copy_to_host: (RuntimeError, "device|accel"),
    plant_round_trip: (AssertionError, "copy to the CPU"),
    plant_value_read_by_host: (AssertionError, "item"),
    plant_positions_without_device: (RuntimeError, "device|accel"),
    plant_random_numbers_without_device: (RuntimeError, "generator"),
}


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_fails_the_test_of_the_step(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error, message = FAULTS[plant]
    plant(monkeypatch)
    with pytest.raises(error, match=message):
        check_steps(tmp_path, "ape", "selective")  # its rows and their positions are drawn in every step


@pytest.mark.parametrize("architecture", ["s4", pytest.param("ape", marks=pytest.mark.slow)])
def test_a_run_that_stops_and_goes_on_ends_bit_for_bit_like_one_that_did_not(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropout = {} if architecture in SCHEMES else {"dropout": 0.2}  # its random stream is the device's own
    config = make_config(architecture, "mod10", n_layers=1, **dropout)
    whole, stopped = (RunFolder.create(tmp_path / name, config) for name in ("whole", "stopped"))
    scores = train(whole, progress=False)
    advance = Trainer.advance

    def stop_after_four(trainer: Trainer) -> Tensor:
        if trainer.step == 4:
            trainer.save_state()
            raise KeyboardInterrupt
        return advance(trainer)

    monkeypatch.setattr(Trainer, "advance", stop_after_four)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, progress=False)
    monkeypatch.undo()
    torch.manual_seed(123)  # the device's stream is elsewhere when the run goes on
    assert train(stopped, progress=False) == scores
    assert stopped.best.read_bytes() == whole.best.read_bytes()
    assert stopped.last.read_bytes() == whole.last.read_bytes()


@pytest.mark.slow
def test_a_checkpoint_of_the_accelerator_scores_the_same_on_the_cpu(tmp_path: Path) -> None:
    config = make_config("rope", "mod10")
    run = RunFolder.create(tmp_path / "run", config)
    scores = train(run, progress=False)
    for device in ("cpu", NAME):
        counter = load_counter(run.path, device)
        assert counter.device.type == device
        assert evaluate(counter, task_of(config), config.data.policy) == scores


@pytest.mark.slow
def test_a_run_on_the_accelerator_can_be_timed() -> None:
    config = make_config("nope")
    timing = time_run(replace(config, record=replace(config.record, tensorboard=False)), seconds_budget=0.05)
    assert min(timing.step, timing.evaluation, timing.final) > 0
