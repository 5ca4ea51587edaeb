"""Pictures over training: on a run whose snapshots are made by hand, so that its end is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter, save_counter
from probes.mechanism.handbuilt import handbuilt_counter
from probes.over_training.growth import AccuracyGrowth, accuracy_growth, pca_growth
from probes.result import NotApplicable
from probes.sites import Site
from training.tasks import make_task, task_settings

TASK = make_task("mod5", train_length=20, ood_length=40)
STEPS = (0, 10, 100, 1000)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three untrained counters, then one that is exact."""
    folder = tmp_path_factory.mktemp("run")
    exact = handbuilt_counter("mean_position", TASK, max_position=64)
    config = TransformerConfig(
        d_vocab=TASK.vocab.size, d_model=16, n_layers=1, n_heads=2, position="ape", max_position=64
    )
    info = CheckpointInfo(family="", model={}, task=task_settings(TASK), policy="shifted")
    for seed, step in enumerate(STEPS):
        path = folder / "snapshots" / f"step-{step:07d}.safetensors"
        path.parent.mkdir(exist_ok=True)
        if step == STEPS[-1]:
            save_counter(path, exact, exact.info)
        else:
            save_counter(path, build_counter(config, torch.Generator().manual_seed(seed)), info)
    save_counter(folder / "model.safetensors", exact, exact.info)
    return folder


def test_accuracy_grows_from_nothing_to_all_positions(run: Path) -> None:
    found = accuracy_growth(run)
    assert found.steps.tolist() == list(STEPS)
    assert found.percent.shape == (4, 40)
    assert found.trained_up_to == 20
    assert (found.percent[-1] == 100).all()
    assert found.learnt(0) < 40
    assert "40 of 40 positions" in found.verdict.sentence
    frame = found.to_frame()
    assert len(frame) == 4 * 40
    assert frame[frame.step == 1000].percent.eq(100).all()


def test_positions_are_counted_as_learnt_from_ninety_percent() -> None:
    percent = np.array([[95.0, 90.0, 89.9, np.nan], [100.0, 100.0, 100.0, np.nan]])
    found = AccuracyGrowth(np.array([0, 5]), percent, 2)
    assert (found.learnt(0), found.learnt(1)) == (2, 3)
    assert found.verdict.sentence == (
        "At the end 3 of 3 positions are right 90 % of the time or more; more than half of them from step 0 on."
    )


def test_components_are_the_last_snapshots_own() -> None:
    found = pca_growth("mod10/ape-2L", Site("resid_post", 0))
    last = found.coordinates[-1]
    assert found.modulus == 10
    np.testing.assert_allclose(last.mean(0), 0, atol=1e-4)
    covariance = last.T @ last
    assert abs(covariance[0, 1]) < 1e-6 * covariance[0, 0]
    assert covariance[0, 0] > covariance[1, 1]
    assert found.shares[-1] > 0.5 > found.shares[0]
    assert found.to_frame().shape == (len(found.steps) * 128, 4)


def test_a_site_that_snapshots_lack_is_named() -> None:
    with pytest.raises(CountLensError, match="unknown site 'L9 resid_post'"):
        pca_growth("mod10/ape-2L", Site("resid_post", 9))


def test_a_run_without_snapshots_says_how_to_get_some() -> None:
    with pytest.raises(NotApplicable, match="--snapshots"):
        accuracy_growth("mod10/lstm-1L")
