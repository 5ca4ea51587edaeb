"""Learning dynamics: hand-made curves whose order is known, and runs whose snapshots are made by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter, save_counter
from models.counter import Counter
from probes.over_training import dynamics as module
from probes.over_training.dynamics import LEAST_RISE, Dynamics, HalfRise, dynamics, half_rise
from probes.result import NotApplicable
from training import RunFolder, draw_batch
from training.evaluate import predict
from training.tasks import make_task, task_settings

STEPS = np.array([0, 1, 3, 10, 30, 100, 300, 1000])


def step_at(step: int, low: float = 0.0, high: float = 100.0) -> np.ndarray:
    """A curve that jumps at a step."""
    return np.where(step <= STEPS, high, low)


def made_of(**curves: np.ndarray) -> Dynamics:
    return Dynamics(STEPS, curves, {}, {})


def test_a_jump_is_placed_between_its_two_snapshots() -> None:
    found = half_rise(STEPS, step_at(100))
    assert isinstance(found, HalfRise)
    assert (found.low, found.high) == (30, 100)
    assert found.step == pytest.approx(np.expm1((np.log1p(30) + np.log1p(100)) / 2))


def test_the_half_rise_is_read_off_on_log_steps() -> None:
    """A curve that is straight over log(1 + step) is halfway at half the logarithm."""
    found = half_rise(STEPS, 3.0 * np.log1p(STEPS) - 7)
    assert found is not None
    assert found.step == pytest.approx(np.sqrt(1001) - 1)
    assert found.low <= found.step <= found.high


@pytest.mark.parametrize(
    ("early", "late", "order"), [(10, 100, "before"), (100, 10, "after"), (30, 30, "with"), (30, 100, "before")]
)
def test_the_order_of_two_jumps_is_found(early: int, late: int, order: str) -> None:
    """Neighbouring intervals touch but do not overlap: one is before the other."""
    assert made_of(score=step_at(early, 0.1, 0.9), ood=step_at(late)).order("score") == order


def test_curves_between_the_same_snapshots_rise_together_whatever_their_shape() -> None:
    slow = np.array([0.0, 0, 0, 0, 0, 60, 100, 100])
    fast = np.array([0.0, 0, 0, 0, 0, 100, 100, 100])
    found = made_of(score=fast, ood=slow)
    assert found.half_rises["score"].step < found.half_rises["ood"].step
    assert found.order("score") == "with"


def test_a_curve_that_falls_again_has_risen_at_its_first_passage() -> None:
    peaked = np.array([0.0, 0, 0, 100, 90, 95, 60, 40])
    found = half_rise(STEPS, peaked)
    assert found is not None
    assert (found.low, found.high) == (3, 10)


@pytest.mark.parametrize("scores", [np.full(8, 7.0), step_at(30, 50.0, 50.1), np.linspace(9.0, 1.0, 8)])
def test_flat_and_falling_curves_do_not_rise(scores: np.ndarray) -> None:
    assert half_rise(STEPS, scores) is None
    assert made_of(score=scores, ood=step_at(30)).order("score") is None


def test_noise_is_rarely_taken_for_a_rise() -> None:
    for snapshots in (6, 8, 12):
        noise = np.random.default_rng(snapshots).normal(size=(2000, snapshots))
        steps = np.arange(snapshots)
        assert np.mean([half_rise(steps, scores) is not None for scores in noise]) < 0.07
    assert LEAST_RISE > 0


def test_learning_to_say_always_the_same_is_no_rise_of_accuracy() -> None:
    """Below its floor an accuracy has learnt nothing; the rise that counts starts there."""
    to_chance = step_at(3, 0.0, 10.0)
    assert half_rise(STEPS, to_chance) is not None
    assert half_rise(STEPS, to_chance, floor=11.0) is None
    then_on = to_chance + step_at(300, 0.0, 90.0)
    assert half_rise(STEPS, then_on, floor=11.0).low == 100


def test_the_verdict_names_each_order_and_what_never_rises() -> None:
    found = made_of(first=step_at(3), same=step_at(100), last=step_at(1000), flat=np.zeros(8), ood=step_at(100))
    sentence = found.verdict.sentence
    assert sentence.startswith("OOD accuracy is halfway up at step 55 (30 to 100); first at step 2 (1 to 3), before it")
    assert "same at step 55 (30 to 100), with it" in sentence
    assert "last at step 548 (300 to 1,000), after it" in sentence
    assert sentence.endswith("without a rise: flat.")
    silent = made_of(ind=step_at(30), ood=np.zeros(8)).verdict.sentence
    assert silent == "OOD accuracy does not rise; ind at step 17 (10 to 30)."


def run_with_snapshots(folder: Path, steps: tuple[int, ...]) -> Path:
    """A run folder of untrained counters that say at which step they were kept."""
    task = make_task("mod10", train_length=5, ood_length=10)
    for step in steps:
        counter = build_counter(
            TransformerConfig(task.vocab.size, "ape", n_heads=1, d_model=8, d_mlp=8, max_position=16),
            torch.Generator().manual_seed(step),
        )
        info = CheckpointInfo("", {}, task=task_settings(task), policy="shifted", step=step)
        save_counter(RunFolder(folder).snapshot(step), counter, info)
        save_counter(RunFolder(folder).best, counter, info)
    return folder


def from_step(first: int) -> module.Score:
    return lambda counter, seed: float(counter.info.step >= first)


def test_scores_are_read_from_each_snapshot_and_their_order_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_with_snapshots(tmp_path / "run", (0, 1, 10, 100, 1000))

    def not_for_this(counter: Counter, seed: int) -> float:
        raise NotApplicable("it has no attention")

    planted = {"ood": from_step(100), "clusters": from_step(10), "bos": from_step(1000), "attention": not_for_this}
    monkeypatch.setattr(module, "CURVES", planted)
    monkeypatch.setattr(module, "FLOORS", {})
    found = dynamics(run)
    assert found.steps.tolist() == [0, 1, 10, 100, 1000]
    assert found.curves["clusters"].tolist() == [0, 0, 1, 1, 1]
    assert found.order("clusters") == "before"
    assert found.order("bos") == "after"
    assert found.skipped == {"attention": "it has no attention"}
    assert set(found.to_frame().curve) == {"ood", "clusters", "bos"}
    assert list(dynamics(run, ["bos"]).curves) == ["bos"]


def test_accuracies_are_those_of_an_evaluation_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    run = run_with_snapshots(tmp_path / "run", (0, 1, 10, 100))
    found = dynamics(run, seed=4)
    for path, ind, ood in zip(module.snapshots(run).values(), found.curves["ind"], found.curves["ood"], strict=True):
        counter = module.load_counter(path)
        task = make_task(**counter.info.task)
        for split, percent in (("ind", ind), ("ood", ood)):
            batch = draw_batch(task, "shifted", 16, split, module.ROWS, torch.Generator().manual_seed(4))
            scored = task.scored(split, batch.label_ids)
            right = (predict(counter, batch) == batch.label_ids) & scored
            assert percent == pytest.approx(100 * float(right.sum() / scored.sum()), abs=1e-3)
    labels = draw_batch(task, "shifted", 16, "ind", module.ROWS, torch.Generator().manual_seed(4)).label_ids
    assert found.floors["ind"] == pytest.approx(100 * float((labels == 1).sum() / (labels > 0).sum()), abs=1e-3)
    assert json.dumps(dynamics(run, seed=4).to_dict()) == json.dumps(found.to_dict())


def test_any_file_of_a_run_leads_to_its_snapshots(tmp_path: Path) -> None:
    run = run_with_snapshots(tmp_path / "run", (0, 1, 10, 100))
    expected = module.snapshots(run)
    assert module.snapshots(RunFolder(run).best) == module.snapshots(RunFolder(run).snapshot(10)) == expected
    assert list(expected) == [0, 1, 10, 100]


@pytest.mark.parametrize(("steps", "words"), [((), "kept no snapshots"), ((0, 5), "kept 2 snapshots")])
def test_a_run_without_enough_snapshots_says_how_to_get_them(
    tmp_path: Path, steps: tuple[int, ...], words: str
) -> None:
    run = run_with_snapshots(tmp_path / "run", steps or (0,))
    if not steps:
        RunFolder(run).snapshot(0).unlink()
    with pytest.raises(NotApplicable, match=f"{words}.*--snapshots"):
        dynamics(run)


def test_a_wrong_curve_lists_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="unknown curve 'odd': did you mean ood"):
        dynamics(tmp_path, ["odd"])
