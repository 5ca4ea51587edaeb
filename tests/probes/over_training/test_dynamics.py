"""Learning dynamics: hand-made curves, and runs whose snapshots are made by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter, save_counter
from models.counter import Counter
from probes.over_training import dynamics as module
from probes.over_training.dynamics import Dynamics, dynamics
from probes.result import NotApplicable
from training import RunFolder, draw_batch
from training.evaluate import predict
from training.tasks import make_task, task_settings

STEPS = np.array([0, 1, 3, 10, 30, 100, 300, 1000])
RISING = np.array([0.0, 5, 15, 30, 50, 70, 90, 100])


def made_of(**curves: np.ndarray) -> Dynamics:
    return Dynamics(STEPS, curves, {}, {})


def test_the_verdict_of_one_run_names_rises_and_claims_no_order() -> None:
    found = made_of(first=RISING, flat=np.zeros(8), jump=np.where(STEPS >= 30, 100.0, 0.0), ood=RISING**2)
    sentence = found.verdict.sentence
    assert sentence.startswith("In this run rise: first from step 0 to 1,000 (p = 0.0")
    assert "no more than random walks of such changes: flat (p = 1.000), jump (p = 0.5" in sentence
    assert sentence.endswith("One run: no claim about what comes first.")
    assert "before" not in sentence
    silent = made_of(ood=np.zeros(8)).verdict.sentence
    assert silent.startswith("In this run nothing surely rises; no more than random walks")


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


def test_scores_are_read_from_each_snapshot_and_their_rises_are_found(
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
    assert (found.rises["clusters"].begin, found.rises["clusters"].end) == (1, 10)
    assert (found.rises["bos"].begin, found.rises["bos"].end) == (100, 1000)
    assert found.skipped == {"attention": "it has no attention"}
    assert set(found.to_frame().curve) == {"ood", "clusters", "bos"}
    assert list(dynamics(run, ["bos"]).curves) == ["bos"]


def test_accuracies_are_those_of_an_evaluation_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    run = run_with_snapshots(tmp_path / "run", (0, 1, 10, 100))
    found = dynamics(run, seed=4)
    for path, ind, ood in zip(module.snapshots_of(run).values(), found.curves["ind"], found.curves["ood"], strict=True):
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
    expected = module.snapshots_of(run)
    assert module.snapshots_of(RunFolder(run).best) == module.snapshots_of(RunFolder(run).snapshot(10)) == expected
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
