"""Study 3: its verdict is a function of the table of runs, and each claim can be planted, true or false."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from models.find import find_checkpoint
from probes.studies.row_beginning import PROTOCOL, STUDY, VOTERS, draw, factors, measure
from probes.studies.study import overall_status
from training.config import TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder

TRUTH: dict[str, dict[str, float]] = {
    "ape": {"vote_explains": 0.6, "first_explains": 0.0, "voters": 4.0, "keeps_10": 1.0, "keeps_5": 0.3}
    | {"keeps_layer1": 0.6, "keeps_moved": 0.2, "vote_explains_long": 0.5, "qk_layer1": 0.9}
    | {"vote_rise": 100.0, "ood_rise": 200.0},
    "sine": {"vote_explains": 0.6, "first_explains": 0.2, "keeps_10": 0.9, "keeps_5": 0.5},
    "spe": {"keeps_10": 0.5, "keeps_5": 0.6},
}


def planted(scheme: str = "ape", **changes: float) -> pd.DataFrame:
    """A table in which every claim is true, but for these columns of one scheme."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in range(1000, 1010):
        for name, truth in TRUTH.items():
            values = truth | (changes if name == scheme else {})
            noisy = {column: value + 0.01 * generator.normal() for column, value in values.items()}
            weights = {f"weight_{place}": 1 / VOTERS for place in range(1, VOTERS + 1)}
            rows.append({"run": f"{name}/{seed}", "seed": seed, "scheme": name} | weights | noisy)
    return pd.DataFrame(rows)


def statuses(table: pd.DataFrame) -> dict[str, str]:
    return {judged.claim.name: judged.status for judged in STUDY.judge(table)}


def test_a_planted_truth_supports_every_claim() -> None:
    assert set(statuses(planted()).values()) == {"supported"}
    assert overall_status(STUDY.judge(planted())) == "supported"


@pytest.mark.parametrize(
    ("scheme", "falsehood", "claim"),
    [
        ("ape", {"first_explains": 0.55}, "more than the first token"),
        ("ape", {"voters": 1.1}, "several voters"),
        ("ape", {"keeps_5": 0.95}, "blind to ten"),
        ("ape", {"keeps_10": 0.3, "keeps_5": 0.3}, "blind to ten"),
        ("ape", {"vote_explains": 0.35}, "a vote and nothing else"),
        ("ape", {"keeps_layer1": 0.2}, "taken in layer 0"),
        ("ape", {"vote_explains_long": 0.0}, "beyond training"),
        ("ape", {"qk_layer1": 0.1}, "in the weights"),
        ("ape", {"vote_rise": 400.0}, "the vote forms first"),
        ("sine", {"first_explains": 0.6}, "sine as well"),
        ("spe", {"keeps_10": 1.0}, "not spe"),
    ],
)
def test_a_planted_falsehood_refutes_its_claim(scheme: str, falsehood: dict[str, float], claim: str) -> None:
    table = planted(scheme, **falsehood)
    assert statuses(table)[claim] == "refuted"
    is_primary = next(one for one in PROTOCOL.claims if one.name == claim).is_primary
    assert overall_status(STUDY.judge(table)) == ("refuted" if is_primary else "supported")


def test_schemes_that_were_not_run_leave_their_claims_open() -> None:
    found = statuses(planted().query("scheme == 'ape'"))
    assert found["sine as well"] == found["not spe"] == "undecided"
    assert found["blind to ten"] == "supported"


def test_pictures_have_every_scheme_and_when_the_vote_forms() -> None:
    panels = draw(planted())
    assert [series.label for series in panels[0].series] == ["ape", "sine", "spe"]
    assert panels[0].series[0].x == tuple(range(1, VOTERS + 1))
    assert len(panels[-1].series[0].x) == 10


def test_a_run_is_measured_as_the_protocol_says(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    shutil.copy(find_checkpoint("mod10/ape-2L"), run.last)
    numbers = measure(run)
    assert {*numbers, *factors(resolve(TrainConfig()))} == set(PROTOCOL.measured)
    assert numbers["keeps_10"] > 0.95
    assert numbers["keeps_5"] < 0.6
    assert numbers["vote_explains"] > numbers["first_explains"]
    assert numbers["vote_rise"] is None  # it has no snapshots there
