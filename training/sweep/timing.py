"""How long a run takes on this machine, from a few real steps and evaluations of it.

On a CPU it is the time that a core works for the run, so that other processes on the same cores do not count: what a
run takes when it has a core to itself. On a GPU, and with several threads, it is the clock on the wall.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import torch

from models.config import CounterConfig
from models.errors import CountLensError
from models.families import build_counter
from training.batches import tabulate_rows
from training.config import RunConfig
from training.evaluate import FINAL_ROWS
from training.presets import model_config, task_of
from training.run.device import choose_device, dropout_stream
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.sweep.flops import evaluation_flops, evaluations, row_length, step_flops
from training.tasks import Split

T = TypeVar("T")

GUESSED_CPU_FLOPS = 1e10  # a second; only decides whether a batch is timed whole or a part of it
FEWEST_CALLS, MOST_CALLS = 4, 100  # of what is timed


@dataclass(frozen=True)
class Timing:
    """Seconds that the parts of a run take."""

    step: float
    evaluation: float  # scoring, and saving the best checkpoint and the state
    final: float  # scoring the best checkpoint once more, on more rows

    def of_run(self, config: RunConfig) -> float:
        """Seconds of a whole run; the config may differ from the timed one in what costs nothing."""
        return config.optimiser.steps * self.step + evaluations(config) * self.evaluation + self.final


def time_run(config: RunConfig, seconds_budget: float = 1.5) -> Timing:
    """The timing of a run, by the training loop's own step in a folder that is thrown away.

    A step or an evaluation that would not fit into the budget is timed with fewer rows, and the time multiplied by
    how many more tokens there are (equal rows, which are computed once, counted once). Nothing is compiled.
    """
    config = _as_far_as_possible(config)
    on_cpu = choose_device(config.hardware.device).type == "cpu"
    part = _affordable(config, seconds_budget) if on_cpu else config
    clock = time.process_time if on_cpu and config.hardware.threads == 1 else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(RunFolder.create(Path(folder) / "run", part))

        def save() -> None:
            trainer.record(0.0, scores)
            trainer.save_state()

        with trainer.writer, dropout_stream(trainer.device, trainer.dropout):
            # A float of the loss waits for the GPU.
            step, _ = _timed(lambda: float(trainer.advance()), clock, 0.5 * seconds_budget)
            scoring, scores = _timed(trainer.score, clock, 0.3 * seconds_budget)
            saving, _ = _timed(save, clock, 0.1 * seconds_budget)
    step_part = _batch_tokens(part) / _batch_tokens(config)
    scored = _scored_tokens(part, part.record.eval_rows)
    return Timing(
        step=step / step_part,
        evaluation=scoring * _scored_tokens(config, config.record.eval_rows) / scored + saving,
        final=scoring * _scored_tokens(config, FINAL_ROWS) / scored,
    )


def extrapolate(timing: Timing, timed: RunConfig, config: RunConfig) -> Timing:
    """What another config would take if it did its arithmetic as fast as the timed one.

    Fair for the same family and width, at other depths, row lengths and batches. Saving is scaled like scoring.
    """
    evaluation = _evaluation_work(config, config.record.eval_rows) / _evaluation_work(timed, timed.record.eval_rows)
    return Timing(
        step=timing.step * step_work(config) / step_work(timed),
        evaluation=timing.evaluation * evaluation,
        final=timing.final * _evaluation_work(config, FINAL_ROWS) / _evaluation_work(timed, FINAL_ROWS),
    )


def step_work(config: RunConfig) -> float:
    """FLOPs of a training step on this machine, equal rows counted once."""
    config = _as_far_as_possible(config)
    nominal = config.optimiser.batch_size * row_length(config, "train")
    return step_flops(config) * _batch_tokens(config) / nominal


def _evaluation_work(config: RunConfig, rows: int) -> float:
    """FLOPs of scoring so many rows of each split, equal rows counted once."""
    nominal = rows * sum(row_length(config, split) for split in task_of(config).splits)
    return evaluation_flops(config, rows) * _scored_tokens(config, rows) / nominal


def _as_far_as_possible(config: RunConfig) -> RunConfig:
    """The config without what this machine lacks: a sweep for a GPU can be planned on a laptop."""
    options = config.hardware
    try:
        device = choose_device(options.device)
    except CountLensError:
        device, options = choose_device("auto"), replace(options, device="auto")
    if device.type != "cuda":
        options = replace(options, precision="fp32", bf16=False)
    options = replace(options, compile=False)
    return replace(config, hardware=options, record=replace(config.record, tensorboard=False))


def _affordable(config: RunConfig, seconds_budget: float) -> RunConfig:
    """The config with as many rows a step and an evaluation as a CPU can be timed with within the budget."""
    batch, rows = config.optimiser.batch_size, config.record.eval_rows
    flops = GUESSED_CPU_FLOPS * seconds_budget
    batch_part = min(1.0, 0.25 * flops / step_flops(config))
    rows_part = min(1.0, 0.5 * flops / evaluation_flops(config, rows))
    return replace(
        config,
        optimiser=replace(config.optimiser, batch_size=max(1, round(batch * batch_part))),
        record=replace(config.record, eval_rows=max(1, round(rows * rows_part))),
    )


def _timed(action: Callable[[], T], clock: Callable[[], float], seconds_budget: float) -> tuple[float, T]:
    """Median seconds of several calls, and what the last one gave.

    The first call warms up, and counts only when there is no time for more. On a busy machine a few calls are waited
    for beyond the budget, as long as they would fit into it on a quiet one.
    """
    times: list[float] = []
    end = time.perf_counter() + seconds_budget
    while True:
        started = clock()
        result = action()
        times.append(clock() - started)
        in_time = time.perf_counter() < end or (len(times) < FEWEST_CALLS and sum(times) < seconds_budget)
        if len(times) == MOST_CALLS or not in_time:
            return statistics.median(times[1:] or times), result


def _batch_tokens(config: RunConfig) -> int:
    """Tokens of a training batch as the trainer computes it."""
    return _tokens(config, "train", config.optimiser.batch_size, config.model.has_dropout)


def _scored_tokens(config: RunConfig, rows: int) -> int:
    """Tokens of an evaluation on so many rows of each split."""
    return sum(_tokens(config, split, rows, independent_rows=False) for split in task_of(config).splits)


def _tokens(config: RunConfig, split: Split, rows: int, independent_rows: bool) -> int:
    """Tokens of a batch as it is computed: rows that the counter cannot tell apart once."""
    task, cfg = task_of(config), model_config(config)
    max_position = max(cfg.max_position, task.longest_row)
    blind = _ignores_shifts(replace(cfg, n_layers=2, d_vocab=1))  # neither matters to positions
    table = None
    if not independent_rows:
        table = tabulate_rows(
            task, config.data.policy, max_position, split, blind, config.model.causal, torch.device("cpu")
        )
    n_rows = rows if table is None else min(rows, len(table.shares))
    return n_rows * row_length(config, split)


@lru_cache(maxsize=4096)
def _ignores_shifts(cfg: CounterConfig) -> bool:
    return build_counter(cfg).ignores_shifts
