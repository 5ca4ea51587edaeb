"""Estimates of sweeps: planted times come out as the right sums, and the text says them as people do."""

from dataclasses import replace
from typing import Any

import pytest

from models.errors import CountLensError
from training.config import RunConfig
from training.sweep import estimate
from training.sweep.estimate import CellEstimate, Estimate, estimate_sweep
from training.sweep.flops import run_flops
from training.sweep.gpus import GPUS, gpu_seconds
from training.sweep.timing import Timing, step_work


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """The configs that were timed; a step of each takes as many seconds as the counter has layers."""
    configs: list[RunConfig] = []

    def planted(config: RunConfig, seconds_budget: float) -> Timing:
        configs.append(config)
        return Timing(step=float(config.model.n_layers), evaluation=0.0, final=0.0)

    monkeypatch.setattr(estimate, "time_run", planted)
    return configs


def layers(tiny: RunConfig, number: int, seed: int = 0, **optimiser: Any) -> RunConfig:
    model = replace(tiny.model, n_layers=number)
    return replace(tiny, model=model, seed=seed, optimiser=replace(tiny.optimiser, **optimiser))


def test_sums_and_costs_are_those_of_the_planted_times(tiny: RunConfig, timed: list[RunConfig]) -> None:
    configs = [layers(tiny, number, seed) for number in (1, 2) for seed in range(3)]
    result = estimate_sweep(
        configs,
        workers=2,
        gpu="l4",
        price_per_core_hour=100.0,
        gpu_usd_per_hour=5.0,
        already_finished=4,
        progress=False,
    )
    assert (result.runs, result.already_finished) == (6, 4)
    assert result.core_seconds == 3 * 12 * 1 + 3 * 12 * 2
    assert result.wall_seconds == 12 * (1 + 2 + 2)  # the other worker has runs of 1, 1 and 2 layers
    assert result.cost == pytest.approx(100 * 108 / 3600)
    assert result.flops == sum(run_flops(config) for config in configs)
    hours = sum(gpu_seconds(GPUS["l4"], config) for config in configs) / 3600
    assert result.gpu_hours == pytest.approx(hours)
    assert result.gpu_cost == pytest.approx(5 * hours)


def test_the_table_has_one_line_a_cell(tiny: RunConfig, timed: list[RunConfig]) -> None:
    frame = estimate_sweep([layers(tiny, 1, seed) for seed in range(2)] + [layers(tiny, 2)], progress=False).to_frame()
    columns = ["cell", "runs", "steps", "flops", "seconds", "gpu_seconds", "launch_bound", "measured"]
    assert list(frame.columns) == columns
    assert frame.runs.tolist() == [2, 1]
    assert frame.steps.tolist() == [12, 12]
    assert frame.seconds.tolist() == [12, 24]
    assert frame.cell.str.startswith("helper/ape-").all()
    assert not frame.cell.str.contains("seed").any()


def test_cells_are_named_after_the_runs_that_the_caller_names(tiny: RunConfig, timed: list[RunConfig]) -> None:
    names = ["mine/seed0", "mine/seed1", "lonely"]
    configs = [layers(tiny, 1), layers(tiny, 1, seed=1), layers(tiny, 2)]
    cells = estimate_sweep(configs, names, progress=False).cells
    assert [(cell.cell, cell.runs) for cell in cells] == [("mine", 2), ("lonely", 1)]


def test_runs_that_cost_the_same_are_timed_once(tiny: RunConfig, timed: list[RunConfig]) -> None:
    same = [
        layers(tiny, 1),
        layers(tiny, 1, seed=1),
        layers(tiny, 1, lr=0.5, weight_decay=0.5),
        layers(tiny, 1, steps=120),
    ]
    result = estimate_sweep(same, progress=False)
    assert len(timed) == 1
    assert [(cell.runs, cell.seconds) for cell in result.cells] == [(2, 12), (1, 12), (1, 120)]
    estimate_sweep([*same, layers(tiny, 1, batch_size=5), layers(tiny, 2)], progress=False)
    assert len(timed) == 1 + 3


def test_without_time_left_the_rest_is_computed_from_one_cell_per_family_and_width(
    tiny: RunConfig, timed: list[RunConfig]
) -> None:
    wide = replace(layers(tiny, 1), model=replace(layers(tiny, 1).model, d_model=16, d_mlp=64))
    configs = [layers(tiny, 4), layers(tiny, 1), layers(tiny, 2), wide]
    result = estimate_sweep(configs, seconds_budget=0.0, progress=False)
    assert timed == [layers(tiny, 1), wide]  # the shallowest, which is quick to build
    assert [cell.measured for cell in result.cells] == [False, True, False, True]
    work = [step_work(config) for config in configs]
    assert result.cells[0].seconds == pytest.approx(12 * work[0] / work[1])
    assert "measured for 2 of 4 cells" in str(result)
    assert "computed from their FLOPs" in str(result)
    everything = estimate_sweep(configs, progress=False)
    assert all(cell.measured for cell in everything.cells)
    assert "computed from their FLOPs" not in str(everything)


def test_what_is_not_timed_is_computed_from_the_timed_cell_with_the_most_similar_work(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small steps take longer than their FLOPs say, so that a far smaller cell is no measure of a large one."""
    clock = iter([0.0, 1.0, 3.0])  # time for the first two cells and not for the third
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: next(clock))
    overhead = 1e-3

    def planted(config: RunConfig, seconds_budget: float) -> Timing:
        return Timing(step=overhead + 1e-9 * step_work(config), evaluation=0.0, final=0.0)

    monkeypatch.setattr(estimate, "time_run", planted)
    configs = [layers(tiny, 1, batch_size=size) for size in (4096, 1, 2048)]
    result = estimate_sweep(configs, seconds_budget=2.0, progress=False)
    assert [cell.measured for cell in result.cells] == [True, False, True]
    similar = 12 * (overhead + 1e-9 * step_work(configs[2]))
    assert result.cells[1].seconds == pytest.approx(similar * step_work(configs[1]) / step_work(configs[2]))


def test_every_cell_has_a_line_with_its_times() -> None:
    cells = (CellEstimate("mod10/ape-2L", 3, 1500, 1e15, 1200.0, 240.0, True),)
    head, line = Estimate(cells, 2, 2400.0, "a100", 2.0).table()
    assert head.split() == ["cell", "runs", "steps", "here", "a100"]
    assert line.split() == ["mod10/ape-2L", "3", "1500", "20", "min", "4", "min"]


@pytest.mark.parametrize(
    ("seconds", "workers", "wall"),
    [
        ([3.0, 1.0, 1.0, 1.0], 1, 6),
        ([3.0, 1.0, 1.0, 1.0], 2, 3),
        ([1.0, 1.0, 1.0, 3.0], 2, 4),  # the long one comes last
        ([2.0, 1.0], 8, 2),
        ([], 2, 0),
    ],
)
def test_workers_take_the_next_run_when_they_are_free(seconds: list[float], workers: int, wall: float) -> None:
    assert estimate._wall_seconds(seconds, workers) == wall


def test_the_text_says_it_all_in_human_units() -> None:
    cells = (
        CellEstimate("mod10/ape-2L", 3, 1500, 1e15, 1200.0, 240.0, True),
        CellEstimate("mod10/lstm-1L", 1, 3000, 2e14, 720.0, 3600.0, False),
    )
    result = Estimate(cells, 2, 2400.0, "a100", 2.0, price_per_core_hour=0.5, already_finished=7)
    work, here, longest, gpu, *notes = str(result).splitlines()
    assert work == "work  4 runs in 2 cells, 3.2 PFLOP; 7 more are finished"
    assert here == "here  1 h 12 min one by one, 40 min with 2 at a time, $0.60 at $0.50 per core hour"
    assert longest == "      the longest run is mod10/ape-2L: 20 min"
    assert gpu == "GPU   1 h 12 min on one a100 (80 GB), $2.40 at $2.00 an hour, a typical list price"
    assert "1 of 2 cells" in notes[-1]
    plain = replace(result, price_per_core_hour=None, gpu_usd_per_hour=1.0, already_finished=0)
    assert plain.cost is None
    assert plain.lines()[0].endswith("3.2 PFLOP")
    assert plain.lines()[1].endswith("2 at a time")
    assert plain.lines()[3].endswith("$1.20 at $1.00 an hour")
    assert max(len(line) for line in result.lines()) <= 120


def test_nothing_left_is_said_so(timed: list[RunConfig]) -> None:
    result = estimate_sweep([], progress=False)
    assert (result.runs, result.core_seconds, result.gpu_cost) == (0, 0, 0)
    assert str(result) == "nothing is left to train"
    assert list(result.to_frame().columns)[:2] == ["cell", "runs"]


def test_wrong_arguments_are_refused(tiny: RunConfig, timed: list[RunConfig]) -> None:
    with pytest.raises(CountLensError, match=r"unknown GPU 'a101': did you mean .*a100"):
        estimate_sweep([tiny], gpu="a101")
    with pytest.raises(CountLensError, match="workers=0: must be at least 1"):
        estimate_sweep([tiny], workers=0)


def test_a_real_estimate_has_every_number(tiny: RunConfig) -> None:
    result = estimate_sweep([tiny, replace(tiny, seed=1)], seconds_budget=0.1, progress=False)
    assert result.core_seconds > 0
    assert result.wall_seconds == pytest.approx(result.core_seconds)
    assert result.gpu_hours > 0
