"""How long a run takes on this machine, measured on a few of its steps and evaluations.

On a CPU with one thread, CPU time is measured, so that other processes do not count: it is the time that a run takes
when it has a core to itself. On a GPU, or with several threads, it is wall-clock time.
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
from training.batches import simplest_policy, tabulate_rows
from training.config import RunConfig
from training.evaluate import FINAL_ROWS
from training.presets import model_config, task_of
from training.run.device import choose_device, dropout_stream
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.sweep.flops import evaluation_flops, evaluations, row_length, step_flops, whole_steps
from training.tasks import Split

T = TypeVar("T")

GUESSED_CPU_FLOPS = 4e10  # per second; only used to decide whether to time whole batches or parts of them
FEWEST_CALLS, MOST_CALLS = 4, 100  # of a function that is timed


@dataclass(frozen=True)
class Timing:
    """The seconds that each part of a run takes."""

    step: float
    evaluation: float  # scoring, and saving the best checkpoint and the state
    final: float  # scoring the best checkpoint once more, on more rows

    def of_run(self, config: RunConfig) -> float:
        """The seconds of a whole run. Its config may have other numbers of steps and evaluations than the timed one."""
        return whole_steps(config) * self.step + evaluations(config) * self.evaluation + self.final


def time_run(config: RunConfig, seconds_budget: float = 1.5) -> Timing:
    """Times a run with the training loop itself, in a temporary folder.

    A step or an evaluation that would not fit into the budget is timed with fewer rows, and its time multiplied by the
    ratio of tokens (equal rows are computed once, and so counted once). Nothing is compiled.
    """
    config = _with_whole_rows(_without_missing_hardware(config))
    on_cpu = choose_device(config.hardware.device).type == "cpu"
    part = _shrink_to_budget(config, seconds_budget) if on_cpu else config
    clock = time.process_time if on_cpu and config.hardware.threads == 1 else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(RunFolder.create(Path(folder) / "run", part))

        def save() -> None:
            trainer.record(0.0, scores)
            trainer.save_state()

        with trainer.writer, dropout_stream(trainer.device, trainer.dropout):
            # Converting the loss to a float waits for the GPU.
            step, _ = _time_calls(lambda: float(trainer.advance()), clock, 0.5 * seconds_budget)
            scoring, scores = _time_calls(trainer.score, clock, 0.3 * seconds_budget)
            saving, _ = _time_calls(save, clock, 0.1 * seconds_budget)
    step_part = _batch_tokens(part) / _batch_tokens(config)
    scored = _scored_tokens(part, part.record.eval_rows)
    return Timing(
        step=step / step_part,
        evaluation=scoring * _scored_tokens(config, config.record.eval_rows) / scored + saving,
        final=scoring * _scored_tokens(config, FINAL_ROWS) / scored,
    )


def extrapolate(timing: Timing, timed: RunConfig, config: RunConfig) -> Timing:
    """The timing of another config, if its arithmetic is as fast as that of the timed one.

    That is so for the same family and width, with other depths, row lengths and batches. Saving is scaled like
    scoring.
    """
    evaluation = _evaluation_work(config, config.record.eval_rows) / _evaluation_work(timed, timed.record.eval_rows)
    return Timing(
        step=timing.step * step_work(config) / step_work(timed),
        evaluation=timing.evaluation * evaluation,
        final=timing.final * _evaluation_work(config, FINAL_ROWS) / _evaluation_work(timed, FINAL_ROWS),
    )


def step_work(config: RunConfig) -> float:
    """The FLOPs of a training step on this machine, with equal rows counted once."""
    config = _without_missing_hardware(config)
    nominal = config.optimiser.batch_size * row_length(config, "train")
    return step_flops(config) * _batch_tokens(config) / nominal


def _evaluation_work(config: RunConfig, rows: int) -> float:
    """The FLOPs of scoring `rows` rows of each split, with equal rows counted once."""
    nominal = rows * sum(row_length(config, split) for split in task_of(config).splits)
    return evaluation_flops(config, rows) * _scored_tokens(config, rows) / nominal


def _with_whole_rows(config: RunConfig) -> RunConfig:
    """The config with whole rows from the first step on: `Timing.step` is the time of such a step."""
    return replace(config, optimiser=replace(config.optimiser, length_warmup=0))


def _without_missing_hardware(config: RunConfig) -> RunConfig:
    """The config without the hardware options that this machine lacks, so that a laptop can plan a sweep for a GPU."""
    options = config.hardware
    try:
        device = choose_device(options.device)
    except CountLensError:
        device, options = choose_device("auto"), replace(options, device="auto")
    if device.type != "cuda":
        options = replace(options, precision="fp32", bf16=False)
    options = replace(options, compile=False)
    return replace(config, hardware=options, record=replace(config.record, tensorboard=False))


def _shrink_to_budget(config: RunConfig, seconds_budget: float) -> RunConfig:
    """The config with no more rows per step and per evaluation than a CPU can time within the budget."""
    batch, rows = config.optimiser.batch_size, config.record.eval_rows
    flops = GUESSED_CPU_FLOPS * seconds_budget
    batch_part = min(1.0, 0.25 * flops / step_flops(config))
    rows_part = min(1.0, 0.5 * flops / evaluation_flops(config, rows))
    return replace(
        config,
        optimiser=replace(config.optimiser, batch_size=max(1, round(batch * batch_part))),
        record=replace(config.record, eval_rows=max(1, round(rows * rows_part))),
    )


def _time_calls(action: Callable[[], T], clock: Callable[[], float], seconds_budget: float) -> tuple[float, T]:
    """The median seconds of several calls, and the result of the last one.

    The first call warms up, and counts only if there is no time for more. On a busy machine a few calls are made even
    beyond the budget, as long as they would fit into it on a quiet one.
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
    """The tokens of a training batch as the trainer computes it."""
    return _tokens(config, "train", config.optimiser.batch_size, config.model.has_dropout)


def _scored_tokens(config: RunConfig, rows: int) -> int:
    """The tokens of an evaluation on `rows` rows of each split."""
    return sum(_tokens(config, split, rows, independent_rows=False) for split in task_of(config).splits)


def _tokens(config: RunConfig, split: Split, rows: int, independent_rows: bool) -> int:
    """The tokens of a batch as it is computed: rows that the counter cannot tell apart are computed once."""
    task, cfg = task_of(config), model_config(config)
    max_position = max(cfg.max_position, task.longest_row)
    policy = _simplest_policy(replace(cfg, n_layers=2, d_vocab=1), config.data.policy)  # whatever these two numbers are
    table = None
    if not independent_rows:
        table = tabulate_rows(task, policy, max_position, split, config.model.causal, torch.device("cpu"))
    n_rows = rows if table is None else min(rows, len(table.shares))
    return n_rows * row_length(config, split)


@lru_cache(maxsize=4096)
def _simplest_policy(cfg: CounterConfig, policy: str) -> str:
    return simplest_policy(build_counter(cfg), policy)
