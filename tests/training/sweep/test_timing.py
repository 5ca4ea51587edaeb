"""Timing: real steps, scaled by the tokens that are really computed; nothing is left behind. No assertion on speed."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from training.batches import grown_length
from training.config import DeviceOptions, ModelOptions, OptimiserOptions, RunConfig, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import Trainer, train
from training.sweep import timing
from training.sweep.flops import evaluation_flops, evaluations, row_length, run_flops, step_flops
from training.sweep.timing import Timing, extrapolate, step_work, time_run


def selective(**model: Any) -> RunConfig:
    """No two rows of this task are equal."""
    return resolve(
        TrainConfig(
            data=TaskOptions(task="selective", train_length=20, ood_length=30),
            model=ModelOptions(**{"n_layers": 1, "d_model": 8} | model),
            optimiser=OptimiserOptions(batch_size=8),
        )
    )


def test_a_run_is_its_steps_and_its_evaluations(tiny: RunConfig) -> None:
    assert Timing(step=1.0, evaluation=10.0, final=100.0).of_run(tiny) == 12 + 3 * 10 + 100


def test_steps_on_cut_rows_count_by_their_tokens(tiny: RunConfig) -> None:
    """Rows that grow to their whole length in all of the steps have about half of the tokens."""
    planted = Timing(step=1.0, evaluation=0.0, final=0.0)
    n_pos = row_length(tiny, "train")
    for warmup in (1, 6, 12, 24):
        growing = replace(tiny, optimiser=replace(tiny.optimiser, length_warmup=warmup))
        tokens = sum(grown_length(step, warmup, n_pos) for step in range(12))
        assert planted.of_run(growing) == pytest.approx(tokens / n_pos)
        assert run_flops(growing) < run_flops(tiny) or warmup == 1


def test_a_step_is_timed_with_whole_rows_even_if_the_first_ones_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    advance = Trainer.advance

    def noted(trainer: Trainer) -> torch.Tensor:
        widths.append(trainer.draw("train", 2).shares.shape[1])
        return advance(trainer)

    monkeypatch.setattr(Trainer, "advance", noted)
    config = selective()
    time_run(replace(config, optimiser=replace(config.optimiser, length_warmup=500)), seconds_budget=0.05)
    assert set(widths) == {20}
    widths.clear()
    grows_by_recipe = resolve(
        TrainConfig(
            data=TaskOptions(task="helper_shifted", train_length=10, ood_length=20),
            model=ModelOptions(position="nope", n_layers=2, d_model=8, n_heads=1),
        )
    )
    assert grows_by_recipe.optimiser.length_warmup
    time_run(grows_by_recipe, seconds_budget=0.05)
    assert set(widths) == {20}


@pytest.mark.parametrize("every", [4, 5, 12, 100])
def test_evaluations_are_as_many_as_a_run_writes_down(tmp_path: Path, tiny: RunConfig, every: int) -> None:
    config = replace(tiny, record=replace(tiny.record, eval_every=every))
    run = RunFolder.create(tmp_path / "run", config)
    train(run, progress=False)
    assert len(run.metrics()) == evaluations(config)


@pytest.mark.parametrize("family", ["transformer", "lstm", "s4"])
def test_timing_takes_real_steps_and_leaves_nothing(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dropout = {} if family == "transformer" else {"dropout": 0.5, "n_layers": 2}
    measured = time_run(selective(family=family, **dropout), seconds_budget=0.1)
    assert measured.step > 0
    assert measured.evaluation > 0
    assert measured.final > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("call_seconds", "calls"), [(0.001, 100), (0.3, 4), (0.6, 2), (5.0, 1)])
def test_cheap_calls_are_timed_often_and_dear_ones_once(
    monkeypatch: pytest.MonkeyPatch, call_seconds: float, calls: int
) -> None:
    """With a budget of one second and a clock that only the calls move."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call() -> int:
        now[0] += call_seconds
        return len(made.append(1) or made)

    made: list[int] = []
    seconds, result = timing._time_calls(call, timing.time.perf_counter, 1.0)
    assert seconds == pytest.approx(call_seconds)
    assert result == len(made) == calls


def ones(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every call takes exactly one second; returns the rows of the batches that were trained on."""
    rows: list[int] = []
    advance = timing.Trainer.advance

    def noted(trainer: timing.Trainer) -> torch.Tensor:
        rows.append(trainer.config.optimiser.batch_size)
        return advance(trainer)

    monkeypatch.setattr(timing, "_time_calls", lambda action, *_: (1.0, action()))
    monkeypatch.setattr(timing.Trainer, "advance", noted)
    return rows


def test_what_fits_into_the_budget_is_timed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ones(monkeypatch)
    config = selective()
    measured = time_run(config)
    assert rows == [8]
    assert measured.step == 1
    assert measured.evaluation == 2  # scoring and saving
    assert measured.final == 1024 / 256


def test_what_does_not_fit_is_timed_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ones(monkeypatch)
    monkeypatch.setattr(timing, "GUESSED_CPU_FLOPS", 1.0)
    measured = time_run(selective())
    assert rows == [1]
    assert measured.step == 8
    assert measured.evaluation == 256 + 1  # saving costs the same however few rows are scored
    assert measured.final == 1024


def test_equal_rows_which_are_computed_once_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without positions all rows of mod10 are the same: one row costs what eight do."""
    ones(monkeypatch)
    monkeypatch.setattr(timing, "GUESSED_CPU_FLOPS", 1.0)
    data = TaskOptions(task="mod10", train_length=20, ood_length=21)
    small = ModelOptions(position="nope", n_layers=1, d_model=8)
    config = TrainConfig(data=data, model=small, optimiser=OptimiserOptions(batch_size=8))
    measured = time_run(resolve(config))
    assert measured.step == 1
    assert measured.evaluation == 2
    with_dropout = replace(config, model=ModelOptions(family="lstm", n_layers=2, d_model=8, dropout=0.5))
    assert time_run(resolve(with_dropout)).step == 8


def test_what_was_not_timed_takes_as_much_longer_as_it_has_more_work() -> None:
    timed, deeper = selective(), selective(n_layers=3)
    seconds = Timing(step=1.0, evaluation=10.0, final=100.0)
    assert extrapolate(seconds, timed, timed) == seconds
    longer = extrapolate(seconds, timed, deeper)
    assert longer.step == pytest.approx(step_flops(deeper) / step_flops(timed))
    assert 2 < longer.step < 3  # the head is there once
    assert longer.evaluation == pytest.approx(10 * longer.final / 100)
    assert longer.evaluation == pytest.approx(10 * evaluation_flops(deeper, 256) / evaluation_flops(timed, 256))
    wider_batch = replace(timed, optimiser=replace(timed.optimiser, batch_size=24))
    assert extrapolate(seconds, timed, wider_batch).step == pytest.approx(3)


def test_equal_rows_are_work_only_once() -> None:
    data = TaskOptions(task="mod10", train_length=20, ood_length=21)
    nope, ape = (
        resolve(TrainConfig(data=data, model=ModelOptions(position=position, n_layers=1, d_model=8)))
        for position in ("nope", "ape")
    )
    assert step_flops(nope) == step_flops(ape)
    assert step_work(nope) < 0.5 * step_work(ape)


def test_a_sweep_for_a_gpu_can_be_planned_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = replace(selective(), hardware=DeviceOptions(device="cuda", bf16=True, compile=True))
    measured = time_run(config, seconds_budget=0.1)
    assert measured.step > 0
    assert extrapolate(measured, config, config).step == pytest.approx(measured.step)
