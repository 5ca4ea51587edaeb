"""Devices and precisions: what does not go together is refused, and a loss scale survives a stop."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.errors import CountLensError
from training.config import DeviceOptions, ModelOptions, RunConfig, TrainConfig
from training.presets import resolve
from training.run import loop
from training.run.device import prepare, restore_scaler, scaler_state
from training.run.folder import RunFolder
from training.run.loop import Trainer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DeviceOptions("cpu", bf16=True), "--bf16 is for CUDA, and this run is on cpu"),
        (DeviceOptions("cpu", precision="fp16"), "--precision fp16 is for CUDA, and this run is on cpu"),
        (DeviceOptions("cpu", precision="fp16", bf16=True), "exclude each other"),
    ],
)
def test_a_precision_that_a_device_lacks_is_refused(options: DeviceOptions, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        prepare(options)


def test_bf16_is_short_for_its_precision() -> None:
    assert DeviceOptions(bf16=True).autocast == DeviceOptions(precision="bf16").autocast == "bf16"
    assert DeviceOptions().autocast == "fp32"


def test_a_loss_scale_comes_back() -> None:
    scaler, fresh = (torch.amp.GradScaler("cpu", init_scale=scale) for scale in (8.0, 1024.0))
    weight = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([weight], lr=0.1)
    for factor in (1.0, 1.0, float("inf"), 1.0):
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
    assert scaler.get_scale() == 4  # halved once, by the gradient that was infinite
    restore_scaler(fresh, scaler_state(scaler))
    assert fresh.state_dict() == scaler.state_dict()


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets half precision run on the CPU, which only CUDA is allowed to outside of tests."""
    monkeypatch.setattr(loop, "prepare", lambda options: torch.device("cpu"))


HALF = DeviceOptions("cpu", precision="fp16")


@pytest.mark.parametrize("family", ["transformer", "rnn", "s4", "mamba", "rwkv6"])  # no CPU has an LSTM in fp16
def test_a_step_in_fp16_is_nearly_that_of_fp32(
    tmp_path: Path, tiny_options: TrainConfig, family: str, on_cpu: None
) -> None:
    dropout = None if family == "transformer" else 0.0  # each step would draw its own
    model = ModelOptions(family=family, n_layers=1, d_model=8, dropout=dropout)
    half = resolve(replace(tiny_options, model=model, hardware=HALF))
    whole = replace(half, hardware=DeviceOptions("cpu"))
    trainers = [Trainer(RunFolder.create(tmp_path / name, cfg)) for name, cfg in (("half", half), ("whole", whole))]
    losses = [float(trainer.advance()) for trainer in trainers]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert losses[0] != losses[1]
    weights = [list(trainer.parts.counter.parameters()) for trainer in trainers]
    for a, b in zip(*weights, strict=True):
        assert (a.grad - b.grad).norm() < 0.05 * b.grad.norm() + 1e-4  # unscaled again


def test_fp16_goes_on_after_a_stop_with_its_loss_scale(tmp_path: Path, tiny: RunConfig, on_cpu: None) -> None:
    trainer = Trainer(RunFolder.create(tmp_path / "run", replace(tiny, hardware=HALF)))
    trainer.advance()
    trainer.scaler.update(new_scale=512.0)
    trainer.advance()
    trainer.save_state()
    resumed = Trainer(RunFolder(tmp_path / "run"))
    assert resumed.scaler.state_dict() == trainer.scaler.state_dict()
    assert resumed.scaler.get_scale() == 512
    assert float(resumed.advance()) == float(trainer.advance())


def test_an_overflow_in_fp16_skips_the_step_and_halves_the_scale(tmp_path: Path, tiny: RunConfig, on_cpu: None) -> None:
    trainer = Trainer(RunFolder.create(tmp_path / "run", replace(tiny, hardware=HALF)))
    trainer.advance()
    before = {name: weight.clone() for name, weight in trainer.parts.counter.state_dict().items()}
    trainer.scaler.update(new_scale=2.0**40)
    trainer.advance()
    assert trainer.scaler.get_scale() == 2.0**39
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.parts.counter.state_dict().items())
