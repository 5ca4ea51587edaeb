"""Study 2: its verdict is a function of the table of runs, and each claim can be planted, true or false."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probes.studies.rope_periods import (
    BASES,
    DETUNED,
    DOSE_BASES,
    FACTORS,
    PROTOCOL,
    STUDY,
    draw,
    factors,
    ideal_clock,
    measure,
)
from probes.studies.study import overall_status
from training.config import ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import train


def planted(**changes: float) -> pd.DataFrame:
    """A table in which every claim is true; `changes` are the OOD of an arm, or other columns of exact counters."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in range(1000, 1010):
        for base in BASES:
            arms = [("exact", 1.0), ("detuned", DETUNED), ("usual", None)]
            if base in DOSE_BASES:
                arms += [("detuned", factor) for factor in FACTORS if factor not in (1.0, DETUNED)]
            for arm, factor in arms:
                ood = 30.0 if arm == "usual" else ideal_clock(base, factor) * 0.9 + 5
                ood = changes.get(arm if factor in (None, 1.0, DETUNED) else "dose", ood) + generator.normal()
                rows.append({"seed": seed, "scheme": "rope", "base": base, "arm": arm, "factor": factor, "ood": ood})
        for arm, factor in (("exact", 1.0), ("detuned", DETUNED), ("usual", None)):
            ood = changes.get(f"sine {arm}", 80.0 if arm == "exact" else 40.0) + generator.normal()
            rows.append({"seed": seed, "scheme": "sine", "base": 10, "arm": arm, "factor": factor, "ood": ood})
    table = pd.DataFrame(rows)
    table["run"] = [f"run{index}" for index in range(len(table))]
    others = {"clock_follows": 0.95, "others_follow": 0.05, "all_follow": 0.9} | changes
    noise = 0.01 * generator.normal(size=len(table))
    for column in ("clock_follows", "others_follow", "all_follow"):
        table[column] = others[column] + noise
    table["exchanged_ood"] = table["ood"] + changes.get("gain", 0.0)
    return table


def statuses(table: pd.DataFrame) -> dict[str, str]:
    return {judged.claim.name: judged.status for judged in STUDY.judge(table)}


def test_a_planted_truth_supports_every_claim() -> None:
    table = planted()
    assert set(statuses(table).values()) == {"supported"}
    assert overall_status(STUDY.judge(table)) == "supported"


@pytest.mark.parametrize(
    ("falsehood", "claim"),
    [
        ({"detuned": 95.0}, "exact beats detuned"),
        ({"usual": 95.0}, "exact beats usual"),
        ({"exact": 50.0, "detuned": 50.0, "dose": 50.0}, "dose and response"),
        ({"clock_follows": 0.2, "others_follow": 0.3}, "the clock turns the answer"),
        ({"dose": 50.0, "exact": 50.0, "detuned": 50.0}, "an ideal clock"),
        ({"exact": 10.0}, "every base"),
        ({"gain": 30.0}, "too late after training"),
        ({"sine exact": 40.0}, "sine as well"),
    ],
)
def test_a_planted_falsehood_refutes_its_claim(falsehood: dict[str, float], claim: str) -> None:
    table = planted(**falsehood)
    assert statuses(table)[claim] == "refuted"
    is_primary = next(one for one in PROTOCOL.claims if one.name == claim).is_primary
    assert overall_status(STUDY.judge(table)) == ("refuted" if is_primary else "supported") or not is_primary


def test_arms_that_were_not_run_leave_their_claims_open() -> None:
    table = planted()
    found = statuses(table[(table["scheme"] == "rope") & (table["arm"] != "usual")])
    assert found["sine as well"] == found["exact beats usual"] == "undecided"
    assert found["exact beats detuned"] == "supported"


def test_pictures_show_every_arm_and_the_ideal_clock() -> None:
    panels = draw(planted())
    assert [len(panel.series) for panel in panels] == [3, 4, 3, 1]
    dose = {series.label: series for series in panels[1].series}
    assert dose["modulo 10"].x == pytest.approx([0, 0.25, 0.5, 1, 2, 3.7, 8])
    assert dose["ideal clock, modulo 10"].y[0].value == 100


@pytest.mark.parametrize("base", [4, 7, 10])
def test_an_ideal_clock_is_right_until_its_hand_is_half_a_place_off(base: int) -> None:
    assert ideal_clock(base, 1.0) == 100
    assert ideal_clock(base, 1.0025) == 100  # a quarter of a place at token 100
    assert 0 < ideal_clock(base, 1.01) < 100
    assert ideal_clock(base, 1.037) < 30


def config(**model: object) -> TrainConfig:
    return resolve(
        TrainConfig(
            data=TaskOptions("mod4", bos=True, train_length=8, ood_length=16),
            model=ModelOptions(d_model=16, n_heads=2, n_layers=1, **model),
            optimiser=OptimiserOptions(steps=2),
            record=RecordOptions(eval_rows=8),
        )
    )


@pytest.mark.parametrize(
    ("periods", "arm", "factor"),
    [((4.0, 8.0), "exact", 1.0), ((4.148, 8.296), "detuned", 1.037), (None, "usual", None)],
)
def test_a_run_is_told_its_arm_from_its_periods(
    periods: tuple[float, ...] | None, arm: str, factor: float | None
) -> None:
    found = factors(config(position="rope", periods=periods))
    assert found == {"scheme": "rope", "base": 4.0, "arm": arm, "factor": factor}


@pytest.mark.parametrize("position", ["rope", "sine"])
def test_a_run_is_measured_as_the_protocol_says(tmp_path: Path, position: str) -> None:
    run = RunFolder.create(tmp_path / "run", config(position=position, periods=(4.0, 8.0)))
    train(run, progress=False)
    numbers = measure(run)
    assert {*numbers, *factors(run.config())} == set(PROTOCOL.measured)
    assert (numbers["clock_follows"] is None) == (position == "sine")
    assert numbers["exchanged_ood"] == pytest.approx(numbers["ood"])  # they were exact already
