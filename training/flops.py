"""How much arithmetic training is, counted from a config alone. A multiply-add is two FLOPs.

Counted: products with weights, attention, and what the recurrences do to their states, for the nominal batch, padding
and the masked half of causal attention included. The backward pass is taken as twice the forward one. Left out, some
percent of a wide counter and more of a narrow one: norms, softmax, activations, embeddings, the loss, drawing the
batch, clipping and the optimiser. On a CPU equal rows of a batch are computed once: that shows in measured time, not
here. Torch's own FlopCounterMode is not used: on a CPU it misses fused attention, the fused LSTM and FFTs, and counts
the gradient of Mamba's convolution as if every channel met every other. With those mended it agrees (see the tests).
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from models.config import CounterConfig, MambaConfig, RecurrentConfig, RWKV6Config, S4Config, TransformerConfig
from models.families import family_of
from models.rwkv6_recurrence import CHUNK, HALVES
from training.config import TaskOptions, TrainConfig
from training.evaluate import FINAL_ROWS
from training.presets import model_config, task_of
from training.tasks import Split


def run_flops(config: TrainConfig) -> float:
    """FLOPs of a whole run of a resolved config: its steps, its evaluations and the final scores."""
    evaluation, final = (evaluation_flops(config, rows) for rows in (config.record.eval_rows or 1, FINAL_ROWS))
    return (config.optimiser.steps or 0) * step_flops(config) + evaluations(config) * evaluation + final


def evaluations(config: TrainConfig) -> int:
    """How often a run is evaluated on its way: each `eval_every` steps, and at the end."""
    return -(-(config.optimiser.steps or 0) // (config.record.eval_every or 1))


def step_flops(config: TrainConfig) -> float:
    """FLOPs of one training step of a resolved config, forward and backward."""
    return 3 * forward_flops(model_config(config), config.optimiser.batch_size or 1, row_length(config, "train"))


def evaluation_flops(config: TrainConfig, rows: int) -> float:
    """FLOPs of scoring so many rows of each split."""
    cfg = model_config(config)
    return sum(forward_flops(cfg, rows, row_length(config, split)) for split in task_of(config).splits)


def row_length(config: TrainConfig, split: Split) -> int:
    """Positions of a batch of this split, padding included."""
    return _row_length(config.data, split)


@lru_cache(maxsize=1024)
def _row_length(data: TaskOptions, split: Split) -> int:
    rows = task_of(TrainConfig(data=data)).sample(split, 1, torch.Generator().manual_seed(0))
    return rows.token_ids.shape[1]


def forward_flops(cfg: CounterConfig, rows: int, n_pos: int) -> float:
    """FLOPs of one forward pass."""
    head = rows * n_pos * cfg.d_model * cfg.d_vocab
    return 2.0 * (cfg.n_layers * LAYERS[family_of(cfg)](cfg, rows, n_pos) + head)


# Multiply-adds of one layer over a whole batch.


def _transformer(cfg: TransformerConfig, rows: int, n_pos: int) -> int:
    projections, mlp = 4 * cfg.d_model**2, 2 * cfg.d_model * cfg.d_mlp
    attention = 2 * n_pos * cfg.d_model  # scores, and the values that they weigh
    return rows * n_pos * (projections + attention + mlp)


def _rnn(cfg: RecurrentConfig, rows: int, n_pos: int) -> int:
    return rows * n_pos * 2 * cfg.d_model**2


def _lstm(cfg: RecurrentConfig, rows: int, n_pos: int) -> int:
    return 4 * _rnn(cfg, rows, n_pos)


def _s4(cfg: S4Config, rows: int, n_pos: int) -> int:
    n = 2 * n_pos
    convolution = round(5 * n * math.log2(n) + 3 * n) // 2  # a transform there, one back, and the product between them
    # 3 coefficients make a table of each pair, from which 8 sums are taken; real and imaginary parts.
    kernel = 11 * (cfg.d_state // 2) * (cfg.kernel_length + 2)
    return cfg.d_model * (rows * convolution + kernel) + rows * n_pos * 2 * cfg.d_model**2


def _mamba(cfg: MambaConfig, rows: int, n_pos: int) -> int:
    projections = 3 * cfg.d_model + (cfg.dt_rank + 2 * cfg.d_state) + cfg.dt_rank  # in and out, x_proj, dt_proj
    state = 4 * cfg.d_state  # decay, write, update, readout
    return rows * n_pos * cfg.d_inner * (projections + cfg.d_conv + state)


def _rwkv6(cfg: RWKV6Config, rows: int, n_pos: int) -> int:
    time_mix = 5 * cfg.d_model**2 + cfg.d_model * (10 * cfg.shift_rank + 2 * cfg.decay_rank)
    channel_mix = cfg.d_model**2 + 2 * cfg.d_model * cfg.d_ffn
    in_chunks = -(-n_pos // CHUNK) * CHUNK
    # In a chunk: running decays, pairs of steps by halves and what they weigh; between chunks: the state, twice.
    recurrence = cfg.d_model * (CHUNK * ((2 + len(HALVES)) + (1 + len(HALVES)) + 1) + 2 * cfg.d_head)
    return rows * (n_pos * (time_mix + channel_mix) + in_chunks * recurrence)


LAYERS: dict[str, Callable[[Any, int, int], int]] = {
    "transformer": _transformer,
    "rnn": _rnn,
    "lstm": _lstm,
    "s4": _s4,
    "mamba": _mamba,
    "rwkv6": _rwkv6,
}
