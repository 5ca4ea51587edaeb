"""A run so small that a test can afford several."""

import pytest

from training.config import ModelOptions, OptimiserOptions, RecordOptions, RunConfig, TaskOptions, TrainConfig
from training.presets import resolve


@pytest.fixture
def tiny_options() -> TrainConfig:
    """Its settings, as a user would give them."""
    return TrainConfig(
        data=TaskOptions(task="helper", train_length=6, ood_length=12),
        model=ModelOptions(position="ape", n_layers=1, d_model=8, n_heads=2),
        optimiser=OptimiserOptions(steps=12, warmup_steps=3, batch_size=4),
        record=RecordOptions(eval_every=4, eval_rows=8, snapshots=3),
    )


@pytest.fixture
def tiny(tiny_options: TrainConfig) -> RunConfig:
    return resolve(tiny_options)
