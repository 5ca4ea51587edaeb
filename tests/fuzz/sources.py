"""Tiny counters and runs that the cases start from."""

from dataclasses import replace
from pathlib import Path

import torch

from models.checkpoint import save_counter
from models.families import FAMILIES, build_counter
from models.schemes import SCHEMES
from training.config import ModelOptions, OptimiserOptions, RecordOptions, RunConfig, TaskOptions, TrainConfig
from training.presets import model_config, resolve
from training.run.loop import describe_checkpoint

ARCHITECTURES = {scheme: ModelOptions(position=scheme, n_layers=1, d_model=8, n_heads=2) for scheme in SCHEMES} | {
    family: ModelOptions(family=family, n_layers=1, d_model=8) for family in FAMILIES if family != "transformer"
}


def tiny_config(architecture: str, task: str = "mod10", **more: int) -> RunConfig:
    """A run of a few steps, of a counter eight wide."""
    return resolve(
        TrainConfig(
            data=TaskOptions(task=task, train_length=4, ood_length=8),
            model=ARCHITECTURES[architecture],
            optimiser=OptimiserOptions(steps=5, warmup_steps=1, batch_size=4, lr=0.03),
            record=replace(RecordOptions(eval_every=2, eval_rows=8), **more),
        )
    )


def write_counter(path: Path, config: RunConfig) -> None:
    """A checkpoint with random weights that looks trained."""
    counter = build_counter(model_config(config), torch.Generator().manual_seed(0))
    save_counter(path, counter, describe_checkpoint(config, 5, {"ind": 100.0, "ood": 12.5}))
