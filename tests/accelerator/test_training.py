"""Training, evaluation and resumption on an accelerator, against the same on the CPU."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.families import FAMILIES
from models.schemes import SCHEMES
from tests.accelerator.device import host_reads
from training.config import DeviceOptions, ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.loop import Trainer, train
from training.presets import resolve
from training.run import RunFolder
from training.tasks import TASKS

ARCHITECTURES = [*SCHEMES, *(family for family in FAMILIES if family != "transformer")]


def config(architecture: str, task: str = "helper", **model) -> TrainConfig:
    family, position = ("transformer", architecture) if architecture in SCHEMES else (architecture, None)
    size = {"n_layers": 2, "d_model": 16} | ({"n_heads": 2} if position else {})
    return resolve(
        TrainConfig(
            data=TaskOptions(task=task, train_length=6, ood_length=12),
            model=ModelOptions(family=family, position=position, **size, **model),
            optimiser=OptimiserOptions(steps=3, warmup_steps=1, batch_size=4),
            record=RecordOptions(eval_every=2, eval_rows=8),
        )
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_step(architecture, tmp_path):
    res = {}
    for device in ("cpu", "auto"):
        c = config(architecture)
        c = replace(c, hardware=replace(c.hardware, device=device))
        t = Trainer(RunFolder.create(tmp_path / device, c))
        host_reads.clear()
        l = [t.advance() for _ in range(3)]
        reads = list(host_reads)
        res[device] = [float(x) for x in l], {n: p.cpu() for n, p in t.parts.counter.state_dict().items()}
        t.writer.__exit__(None, None, None)
    print(architecture, reads, res["cpu"][0], res["auto"][0])
    for n, p in res["cpu"][1].items():
        torch.testing.assert_close(res["auto"][1][n], p)
    assert 0


@pytest.mark.parametrize("task", TASKS)
def test_task(task, tmp_path):
    res = {}
    for device in ("cpu", "auto"):
        c = config("nope", task)
        c = replace(c, hardware=replace(c.hardware, device=device))
        t = Trainer(RunFolder.create(tmp_path / device, c))
        host_reads.clear()
        l = [t.advance() for _ in range(3)]
        print(task, host_reads)
        res[device] = [float(x) for x in l]
        res[device + "s"] = t.score()
    assert res["autos"] == res["cpus"]
    assert 0
