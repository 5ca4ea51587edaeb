"""Study 1: its verdict is a function of the table of runs, and each claim can be planted, true or false."""

from pathlib import Path

import numpy as np
import pandas as pd

from probes.studies.predicting_ood import PROTOCOL, STUDY, draw, factors, measure, with_errors
from probes.studies.study import overall_status
from training.config import ModelOptions, OptimiserOptions, RecordOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import train

CELLS = {"ape, decay 0.1": 60.0, "ape, decay 1": 90.0, "sine, decay 0.1": 20.0, "sine, decay 1": 40.0}


def planted(by_score: float = 40.0, by_loss: float = 0.0, noise: float = 3.0, seeds: int = 16) -> pd.DataFrame:
    """OOD follows the score inside each cell, the loss, or neither."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in range(1000, 1000 + seeds):
        for cell, level in CELLS.items():
            score, log_loss = generator.uniform(0.3, 0.9), generator.uniform(-3, -1)
            ood = level + by_score * (score - 0.6) + by_loss * (log_loss + 2) + noise * generator.normal()
            others = {name: generator.normal() for name in ("ind", "margin", "weight_norm")}
            row = {"seed": seed, "cell": cell, "score": score, "log_loss": log_loss, "ood": ood}
            rows.append({"run": f"{cell}/{seed}"} | row | others)
    return pd.DataFrame(rows)


def statuses(table: pd.DataFrame) -> dict[str, str]:
    """What came out of each claim, and of the hypothesis."""
    claims = STUDY.judge(table)
    return {judged.claim.name: judged.status for judged in claims} | {"hypothesis": overall_status(claims)}


def test_a_planted_truth_supports_every_claim() -> None:
    assert set(statuses(planted()).values()) == {"supported"}


def test_a_score_that_goes_with_nothing_refutes_the_hypothesis() -> None:
    table = planted(by_score=0.0, by_loss=10.0)
    found = statuses(table)
    assert found["the score goes with OOD"] == found["better predictions"] == "refuted"
    assert found["better than what is measured anyway"] == "refuted"
    assert found["hypothesis"] == "refuted"


def test_a_score_that_only_differs_between_cells_is_no_support() -> None:
    """Ape scores high and extrapolates, sine does neither: that alone says nothing of seeds."""
    table = planted(by_score=0.0)
    table["score"] = table["cell"].map({cell: level / 100 for cell, level in CELLS.items()}) + table["score"] / 100
    assert table[["score", "ood"]].corr().iloc[0, 1] > 0.9
    assert statuses(table)["the score goes with OOD"] == "refuted"


def test_a_score_that_is_an_echo_of_the_loss_adds_nothing() -> None:
    table = planted(by_score=0.0, by_loss=20.0)
    table["score"] = table["log_loss"] + 0.05 * np.random.default_rng(1).normal(size=len(table))
    found = statuses(table)
    assert found["the score goes with OOD"] == "supported"
    assert found["better predictions"] == "refuted"
    assert found["beyond the loss"] != "supported"


def test_noisy_predictions_are_not_close() -> None:
    assert statuses(planted(noise=40.0))["close predictions"] == "refuted"


def test_each_run_is_predicted_without_its_own_seed() -> None:
    table = planted(noise=0.0)
    errors = with_errors(table)
    assert errors["error"].max() < 1e-6
    changed = with_errors(table.assign(ood=table["ood"].where(table["seed"] != 1003, 0.0)))
    same = changed["seed"] == 1003
    np.testing.assert_allclose(changed.loc[same, "predicted"], errors.loc[same, "predicted"])


def test_two_seeds_are_too_few_to_predict_from() -> None:
    found = statuses(planted(seeds=2))
    assert found["better predictions"] == found["close predictions"] == "undecided"
    assert len(draw(planted(seeds=2))) == 2


def test_pictures_show_every_run_by_its_name() -> None:
    scatter, bars, predictions = draw(planted())
    assert [series.label for series in scatter.series] == sorted(CELLS)
    assert scatter.series[0].names[0] == "ape, decay 0.1/1000"
    assert bars.series[0].x[0] == "interchange score"
    assert len(predictions.series) == 4


def test_a_run_is_measured_as_the_protocol_says(tmp_path: Path) -> None:
    config = resolve(
        TrainConfig(
            model=ModelOptions(position="ape", d_model=16, n_heads=2),
            optimiser=OptimiserOptions(steps=2),
            record=RecordOptions(eval_rows=8),
        )
    )
    run = RunFolder.create(tmp_path / "run", config)
    train(run, progress=False)
    numbers = measure(run)
    assert {*numbers, *factors(config)} == set(PROTOCOL.measured)
    assert numbers["score"] == min(numbers["score_own"], numbers["score_beginning"])
    assert -1 < numbers["log_loss"] < 2
    assert factors(config)["cell"] == "ape, decay 1"
