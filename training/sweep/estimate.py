"""The cost of a sweep: FLOPs, time and money, on this machine (measured) and on a named GPU (computed).

Of a large grid only a part is measured: see `estimate_sweep`.
"""

import heapq
import math
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, fields, replace

import pandas as pd
from tqdm import tqdm

from models.errors import CountLensError, unknown
from training.config import RunConfig
from training.presets import run_name
from training.sweep.flops import run_flops
from training.sweep.gpus import GPUS, LAUNCH_SECONDS, UTILISATION, bound_by_launches, gpu_seconds
from training.sweep.timing import Timing, extrapolate, step_work, time_run
from training.sweep.units import dollars, duration, operations

SECONDS_OF_A_SMALL_GRID = 10.0  # of timing, shared by its cells
MOST_SECONDS_A_CELL = 2.0  # more would not make it better
LEAST_SECONDS_A_CELL = 0.5  # less would be noise, or parts of batches in place of whole ones


@dataclass(frozen=True)
class CellEstimate:
    """A cell of a grid (runs that differ only in their seed), and the cost of one of its runs."""

    cell: str  # the name of its runs without the seed
    runs: int
    steps: int
    flops: float  # per run
    seconds: float  # per run, on this machine
    gpu_seconds: float  # per run, on the GPU
    launch_bound: bool  # on the GPU, starting kernels takes longer than computing
    measured: bool = True  # on this machine; False: computed from FLOPs at the speed of a measured cell


@dataclass(frozen=True)
class Estimate:
    """The cost of a sweep. As text (`str`), it is what a user wants to know before starting one."""

    cells: tuple[CellEstimate, ...]
    workers: int  # runs at a time on this machine
    wall_seconds: float  # until the last of the workers is done
    gpu: str  # its name in GPUS
    gpu_usd_per_hour: float
    price_per_core_hour: float | None = None  # US dollars on this machine
    already_finished: int = 0  # runs that the cells do not include

    @property
    def runs(self) -> int:
        return sum(cell.runs for cell in self.cells)

    @property
    def flops(self) -> float:
        return sum((cell.runs * cell.flops for cell in self.cells), 0.0)

    @property
    def core_seconds(self) -> float:
        return sum((cell.runs * cell.seconds for cell in self.cells), 0.0)

    @property
    def cost(self) -> float | None:
        """US dollars on this machine; None if no price per core hour is given."""
        return None if self.price_per_core_hour is None else self.core_seconds / 3600 * self.price_per_core_hour

    @property
    def gpu_hours(self) -> float:
        return sum((cell.runs * cell.gpu_seconds for cell in self.cells), 0.0) / 3600

    @property
    def gpu_cost(self) -> float:
        return self.gpu_hours * self.gpu_usd_per_hour

    def to_frame(self) -> pd.DataFrame:
        """One line per cell; FLOPs and seconds are per run."""
        return pd.DataFrame(
            [asdict(cell) for cell in self.cells], columns=[field.name for field in fields(CellEstimate)]
        )

    def lines(self) -> list[str]:
        """The lines of the text."""
        if not self.cells:
            return ["nothing is left to train"]
        longest = max(self.cells, key=lambda cell: cell.seconds)
        bound = sum(cell.launch_bound for cell in self.cells)
        finished = f"; {self.already_finished} more are finished" if self.already_finished else ""
        return [
            f"work  {self.runs} runs in {len(self.cells)} cells, {operations(self.flops)}{finished}",
            f"here  {self._here()}",
            f"      the longest run is {longest.cell}: {duration(longest.seconds)}",
            f"GPU   {self._on_the_gpu()}",
            *self._how_it_was_measured(),
            f"The GPU's are computed: one run at a time, FLOPs at {UTILISATION:.0%} of its peak or, if that is longer,",
            f"{LAUNCH_SECONDS * 1e6:.0f} microseconds per kernel. It is longer for {bound} of {len(self.cells)} cells: "
            "a faster GPU would not help those.",
        ]

    def _how_it_was_measured(self) -> list[str]:
        measured = sum(cell.measured for cell in self.cells)
        if measured == len(self.cells):
            return [
                "Times here are measured, a few steps and an evaluation of each cell; they hold for cores left alone."
            ]
        return [
            f"Times here are measured for {measured} of {len(self.cells)} cells: some steps and an evaluation of each.",
            "The others are computed from their FLOPs, at the speed of a similar cell of the same family and width.",
        ]

    def table(self) -> list[str]:
        """A text table with one line per cell: its name, runs and steps, and the time per run here and on the GPU."""
        if not self.cells:
            return []
        width = max(len(cell.cell) for cell in self.cells)
        head = f"{'cell':{width}} {'runs':>4} {'steps':>7} {'here':>11} {self.gpu:>11}"
        return [head] + [
            f"{cell.cell:{width}} {cell.runs:4} {cell.steps:7} {duration(cell.seconds):>11} "
            f"{duration(cell.gpu_seconds):>11}"
            for cell in self.cells
        ]

    def _here(self) -> str:
        text = f"{duration(self.core_seconds)} one by one, {duration(self.wall_seconds)} with {self.workers} at a time"
        if self.cost is None or self.price_per_core_hour is None:
            return text
        return f"{text}, {dollars(self.cost)} at {dollars(self.price_per_core_hour)} per core hour"

    def _on_the_gpu(self) -> str:
        card = GPUS[self.gpu]
        typical = ", a typical list price" if self.gpu_usd_per_hour == card.usd_per_hour else ""
        return (
            f"{duration(3600 * self.gpu_hours)} on one {self.gpu} ({card.memory_gb} GB), {dollars(self.gpu_cost)} at "
            f"{dollars(self.gpu_usd_per_hour)} an hour{typical}"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())


def estimate_sweep(
    configs: Sequence[RunConfig],
    names: Sequence[str] | None = None,
    workers: int = 1,
    gpu: str = "a100",
    price_per_core_hour: float | None = None,
    gpu_usd_per_hour: float | None = None,
    already_finished: int = 0,
    seconds_budget: float = 150.0,
    progress: bool = True,
) -> Estimate:
    """Estimates the cost of these runs, trained in this order. A GPU's default price is its typical list price.

    Runs of equal cost, which differ only in their seed or in numbers such as the learning rate, are timed once. One
    cell per family and width is always timed, then others until `seconds_budget` is used up: that is enough for some
    two hundred small ones. The rest is computed, each from the timed cell whose steps have the most similar work.
    """
    if gpu not in GPUS:
        raise unknown("GPU", gpu, GPUS)
    if workers < 1:
        raise CountLensError(f"workers={workers}: must be at least 1")
    measured, computed = _time_kinds({_cost_key(config): config for config in configs}, seconds_budget, progress)
    keys = [_cost_key(config) for config in configs]
    seconds = [(measured | computed)[key].of_run(config) for key, config in zip(keys, configs, strict=True)]
    is_measured = [key in measured for key in keys]
    return Estimate(
        cells=_cells(configs, names or [run_name(config) for config in configs], seconds, is_measured, gpu),
        workers=workers,
        wall_seconds=_wall_seconds(seconds, workers),
        gpu=gpu,
        gpu_usd_per_hour=GPUS[gpu].usd_per_hour if gpu_usd_per_hour is None else gpu_usd_per_hour,
        price_per_core_hour=price_per_core_hour,
        already_finished=already_finished,
    )


def _time_kinds(
    kinds: dict[Hashable, RunConfig], seconds_budget: float, progress: bool
) -> tuple[dict[Hashable, Timing], dict[Hashable, Timing]]:
    """The timings of all kinds of runs, in two dicts: the measured ones, and those computed from them."""
    share = SECONDS_OF_A_SMALL_GRID / max(1, len(kinds))
    budget = max(LEAST_SECONDS_A_CELL, min(MOST_SECONDS_A_CELL, share))
    end = time.perf_counter() + seconds_budget
    # Shallow ones first, since they are quick to build; among them those with most work, where overhead matters least.
    work = {key: step_work(config) for key, config in kinds.items()}
    order = sorted(kinds, key=lambda key: (kinds[key].model.n_layers, -work[key]))
    first = {_speed_key(kinds[key]): key for key in reversed(order)}
    order = [*first.values(), *(key for key in order if key not in first.values())]
    measured: dict[Hashable, Timing] = {}
    for index, key in enumerate(tqdm(order, desc="timing", unit="cell", disable=not progress, dynamic_ncols=True)):
        if index >= len(first) and time.perf_counter() > end:
            break
        measured[key] = time_run(kinds[key], budget)
    computed: dict[Hashable, Timing] = {}
    for key in order[len(measured) :]:
        alike = [timed for timed in measured if _speed_key(kinds[timed]) == _speed_key(kinds[key])]
        timed = min(alike, key=lambda timed: abs(math.log(work[timed] / work[key])))
        computed[key] = extrapolate(measured[timed], kinds[timed], kinds[key])
    return measured, computed


def _speed_key(config: RunConfig) -> Hashable:
    """Runs with the same key do arithmetic at about the same speed."""
    return config.model.family, config.model.d_model, config.hardware


def _cost_key(config: RunConfig) -> Hashable:
    """Runs with the same key take the same time per step and per evaluation."""
    model = replace(config.model, init_std=None, embed_std=None, periods=None)
    return config.data, model, config.optimiser.batch_size, config.record.eval_rows, config.hardware


def _cells(
    configs: Sequence[RunConfig],
    names: Sequence[str],
    seconds: Sequence[float],
    measured: Sequence[bool],
    gpu: str,
) -> tuple[CellEstimate, ...]:
    """The estimate of each cell, in the order in which cells first occur."""
    without_seeds = [replace(config, seed=0) for config in configs]
    first = {config: index for index, config in reversed(list(enumerate(without_seeds)))}
    card = GPUS[gpu]
    return tuple(
        CellEstimate(
            cell=names[first[config]].rpartition("/")[0] or names[first[config]],
            runs=runs,
            steps=config.optimiser.steps,
            flops=run_flops(config),
            seconds=seconds[first[config]],
            gpu_seconds=gpu_seconds(card, config),
            launch_bound=bound_by_launches(card, config),
            measured=measured[first[config]],
        )
        for config, runs in Counter(without_seeds).items()
    )


def _wall_seconds(seconds: Sequence[float], workers: int) -> float:
    """The seconds until all runs are done, if each worker takes the next run as soon as it is free."""
    free_at = [0.0] * workers
    for run in seconds:
        heapq.heappush(free_at, heapq.heappop(free_at) + run)
    return max(free_at)
