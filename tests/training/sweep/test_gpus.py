"""The GPU model: launches against what PyTorch really dispatches, and which of the two times counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from training.config import DeviceOptions, ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.sweep.gpus import (
    GPUS,
    LAUNCH_SECONDS,
    UTILISATION,
    Gpu,
    bound_by_launches,
    gpu_seconds,
    step_launches,
)

CARD = Gpu(memory_gb=1, fp32_tflops=1.0, bf16_tflops=10.0, usd_per_hour=1.0)
NO_KERNEL = ("aten::detach", "aten::empty", "aten::new_empty", "aten::_unsafe_view", "profiler::")


class Kernels(TorchDispatchMode):
    """Counts the calls that compute something: neither views nor allocations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aliases = [argument.alias_info for argument in func._schema.arguments]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.count += not is_view and not func._schema.name.startswith(NO_KERNEL)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("family", ["transformer", "s4", "mamba", "rwkv6"])  # rnn and lstm are other kernels on a GPU
def test_launches_are_about_what_pytorch_dispatches(tmp_path: Path, family: str, n_layers: int) -> None:
    width = 256 if family == "mamba" else 16  # so wide that the scan has to go by chunks
    model = ModelOptions(family=family, n_layers=n_layers, d_model=width)
    config = resolve(TrainConfig(data=TaskOptions(train_length=10, ood_length=20), model=model))
    trainer = Trainer(RunFolder.create(tmp_path / "run", config))
    trainer.independent_rows = True
    trainer.advance()
    with Kernels() as kernels:
        trainer.advance()
    assert step_launches(config) == pytest.approx(kernels.count, rel=0.25)


def test_every_gpu_has_sound_numbers() -> None:
    for gpu in GPUS.values():
        assert 0 < gpu.fp32_tflops < (gpu.bf16_tflops or 1000)
        assert gpu.memory_gb >= 16
        assert 0.1 < gpu.usd_per_hour < 10


def test_a_step_takes_the_longer_of_arithmetic_and_launches() -> None:
    assert CARD.seconds(UTILISATION * 1e12, 1) == pytest.approx(1)
    assert CARD.seconds(1.0, 100) == pytest.approx(100 * LAUNCH_SECONDS)
    assert CARD.seconds(UTILISATION * 1e12, 1, "bf16") == pytest.approx(0.1)
    assert CARD.seconds(UTILISATION * 1e12, 1, "fp16") == pytest.approx(0.1)
    old = replace(CARD, bf16_tflops=None, fp16_tflops=5.0)
    assert old.seconds(UTILISATION * 1e12, 1, "bf16") == pytest.approx(1)
    assert old.seconds(UTILISATION * 1e12, 1, "fp16") == pytest.approx(0.2)


def test_small_counters_wait_for_launches_and_wide_ones_for_arithmetic() -> None:
    small, paper = (resolve(TrainConfig(preset=preset)) for preset in ("small", "paper"))
    assert bound_by_launches(GPUS["a100"], small)
    assert gpu_seconds(GPUS["a100"], small) == gpu_seconds(GPUS["h100"], small)
    assert not bound_by_launches(GPUS["a100"], paper)
    assert gpu_seconds(GPUS["h100"], paper) < gpu_seconds(GPUS["a100"], paper)
    halves = replace(paper, hardware=DeviceOptions(bf16=True))
    assert gpu_seconds(GPUS["a100"], halves) < 0.2 * gpu_seconds(GPUS["a100"], paper)
    assert gpu_seconds(GPUS["t4"], halves) == gpu_seconds(GPUS["t4"], paper)


def test_launches_of_mamba_grow_with_the_length_and_those_of_a_transformer_do_not() -> None:
    def launches(family: str, length: int) -> int:
        data = TaskOptions(train_length=length, ood_length=2 * length)
        return step_launches(resolve(TrainConfig(data=data, model=ModelOptions(family=family))))

    assert launches("mamba", 100) > 1.5 * launches("mamba", 50)
    assert launches("lstm", 100) > 1.5 * launches("lstm", 50)
    assert launches("transformer", 100) == launches("transformer", 50)


def test_evaluations_cost_gpu_time_too() -> None:
    often, seldom = (
        resolve(TrainConfig(optimiser=OptimiserOptions(steps=100), record=RecordOptions(eval_every=every)))
        for every in (1, 100)
    )
    assert gpu_seconds(CARD, often) > 2 * gpu_seconds(CARD, seldom)
