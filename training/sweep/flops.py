"""The FLOPs of training, counted from a config alone. A multiply-add is two FLOPs.

Counted: products with weights, attention, and what the recurrences do to their states, for the nominal batch, padding
and the masked half of causal attention included. The backward pass is taken as twice the forward one. Left out, some
percent of a wide counter and more of a narrow one: norms, softmax, activations, embeddings, the loss, drawing the
batch, clipping and the optimiser. On a CPU equal rows of a batch are computed once, which shows in measured times but
not here. Torch's own FlopCounterMode is not used: on a CPU it misses fused attention, the fused LSTM and FFTs, and
counts the gradient of Mamba's convolution as if every channel met every other. With those corrected it agrees (see the
tests).
"""

from functools import lru_cache

import torch

from models.config import CounterConfig
from training.batches import grown_length
from training.config import RunConfig, TaskSettings, TrainConfig
from training.evaluate import FINAL_ROWS
from training.presets import model_config, task_of
from training.tasks import Split


def run_flops(config: RunConfig) -> float:
    """FLOPs of a whole run: its steps, its evaluations and the final scores."""
    evaluation, final = (evaluation_flops(config, rows) for rows in (config.record.eval_rows, FINAL_ROWS))
    return whole_steps(config) * step_flops(config) + evaluations(config) * evaluation + final


def whole_steps(config: RunConfig) -> float:
    """The number of steps with whole rows that have as many tokens as all steps of a run."""
    steps, warmup = config.optimiser.steps, config.optimiser.length_warmup
    if warmup is None:
        return float(steps)
    n_pos = row_length(config, "train")
    growing = min(steps, warmup)
    return steps - growing + sum(grown_length(step, warmup, n_pos) for step in range(growing)) / n_pos


def evaluations(config: RunConfig) -> int:
    """The number of evaluations during a run: one after every `eval_every` steps, and one at the end."""
    return -(-config.optimiser.steps // config.record.eval_every)


def step_flops(config: RunConfig) -> float:
    """FLOPs of one training step, forward and backward."""
    return 3 * forward_flops(model_config(config), config.optimiser.batch_size, row_length(config, "train"))


def evaluation_flops(config: RunConfig, rows: int) -> float:
    """FLOPs of scoring `rows` rows of each split."""
    cfg = model_config(config)
    return sum(forward_flops(cfg, rows, row_length(config, split)) for split in task_of(config).splits)


def row_length(config: RunConfig, split: Split) -> int:
    """The number of positions of a batch of this split, padding included."""
    return _row_length(config.data, split)


@lru_cache(maxsize=1024)
def _row_length(data: TaskSettings, split: Split) -> int:
    rows = task_of(TrainConfig(data=data)).sample(split, 1, torch.Generator().manual_seed(0))
    return rows.token_ids.shape[1]


def forward_flops(cfg: CounterConfig, rows: int, n_pos: int) -> float:
    """FLOPs of one forward pass over `rows` rows of `n_pos` positions."""
    head = rows * n_pos * cfg.d_model * cfg.d_vocab
    return 2.0 * (cfg.n_layers * cfg.layer_multiply_adds(rows, n_pos) + head)
