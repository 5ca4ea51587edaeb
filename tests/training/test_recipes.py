"""The recipes of the preset `small` do what the README says they do; minutes, so `make test-all` runs them."""

from pathlib import Path

import pytest

from models import load_counter
from training import RunFolder, TrainConfig, evaluate, resolve, train
from training.config import ModelOptions, TaskOptions
from training.tasks import make_task

pytestmark = pytest.mark.slow


def best_of(seeds: int, task: str, position: str, tmp_path: Path) -> tuple[float, float]:
    """IND and OOD of the best seed."""
    pairs = []
    for seed in range(seeds):
        config = TrainConfig(seed=seed, data=TaskOptions(task=task), model=ModelOptions(position=position))
        scores = train(RunFolder.create(tmp_path / str(seed), resolve(config)), progress=False)
        pairs.append((scores.ind, scores.ood))
    return max(pairs, key=sum)


@pytest.mark.parametrize(("position", "recognised"), [("ape", 1), ("sine", 1), ("spe", 1), ("nope", 0), ("rope", 0)])
def test_who_recognises_the_first_of_equal_tokens(position: str, recognised: int, tmp_path: Path) -> None:
    ind, ood = best_of(3 if recognised else 1, "first_tok_homogeneous", position, tmp_path)
    assert (ind >= 99, ood >= 99) == ((True, True) if recognised else (False, False))
    if not recognised:
        assert (ind, ood) == (0.0, 0.0)


def test_learned_positions_count_modulo_10_past_the_training_length(tmp_path: Path) -> None:
    ind, ood = best_of(1, "mod10", "ape", tmp_path)
    assert ind >= 99
    assert ood >= 95


@pytest.mark.parametrize("family", ["rnn", "lstm"])
def test_recurrence_counts_modulo_10_on_and_on(family: str, tmp_path: Path) -> None:
    config = resolve(TrainConfig(data=TaskOptions(task="mod10"), model=ModelOptions(family=family)))
    scores = train(RunFolder.create(tmp_path / "run", config), progress=False)
    assert (scores.ind, scores.ood) == (100.0, 100.0)
    far = make_task("mod10").with_lengths(train_length=100, ood_length=1000)
    assert evaluate(load_counter(tmp_path / "run"), far, "shifted", rows=64).ood == 100.0


@pytest.mark.parametrize("position", ["nope", "rope"])
def test_who_cannot_see_the_first_token_stays_at_chance(position: str, tmp_path: Path) -> None:
    ind, ood = best_of(1, "mod10", position, tmp_path)
    assert 5 < ind < 15
    assert 5 < ood < 15
