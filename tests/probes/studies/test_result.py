"""Results on disk: what is written comes back, and what is broken is listed with its reason."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toy_study import CLAIM, PROTOCOL, toy_study

from models.errors import CountLensError
from probes.studies.result import StudyResult, describe, list_results, read_result
from probes.studies.study import JudgedClaim

ROWS = tuple(
    {"run": f"{lr}/{seed}", "seed": float(seed), "lr": lr, "task": "mod3", "ind": ind + seed, "weird": None}
    for seed in (0, 1)
    for lr, ind in ((0.0, 10.0), (0.1, 40.0))
)


def make_result(**changes: Any) -> StudyResult:
    study, table = toy_study(), pd.DataFrame(ROWS)
    fields = {"study": "toy", "number": 9, "title": "Rates", "protocol": PROTOCOL, "protocol_digest": PROTOCOL.digest}
    fields |= {"quick": False, "n_runs": 4, "missing": {}, "rows": ROWS}
    fields |= {"claims": study.judge(table), "panels": study.draw(table)}
    return StudyResult(**fields | changes)


def write(folder: Path, values: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    result = make_result()
    assert read_result(write(tmp_path, result.to_dict())) == result
    assert result.to_frame()["ind"].tolist() == [10, 40, 11, 41]


def test_the_verdict_says_the_number_its_interval_and_what_would_refute_it() -> None:
    verdict = make_result().verdict
    assert verdict.sentence == "Supported (4 runs, 2 seeds). Faster is better: 30.0 (30.0 to 30.0), supported."
    assert verdict.would_change == "faster is better: it is surely lower"


def test_missing_runs_and_a_quick_study_are_said() -> None:
    assert make_result(quick=True, n_runs=6).size == "quick: 4 of 6 runs, 2 seeds"
    assert describe(JudgedClaim(CLAIM, None)) == "faster is better: not measured"
    claims = make_result(claims=(JudgedClaim(CLAIM, None),))
    assert claims.status == "undecided"
    assert claims.claims_frame()["value"].isna().all()


def test_every_result_below_a_folder_is_found_and_a_broken_one_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a", make_result().to_dict())
    write(tmp_path / "b", "{")
    found = list_results(tmp_path)
    assert [one.path.parent.name for one in found] == ["a", "b"]
    assert found[0].result == make_result()
    assert found[1].result is None
    assert "cannot be read" in found[1].error
    assert list_results(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rows", [{"run": ["x"]}], "result.json"),
        ("claims", [{"claim": {}}], "result.json"),
        (
            "panels",
            [{"caption": "x", "x_title": "", "y_title": "", "series": [{"label": "", "x": [1.0], "y": []}]}],
            "r",
        ),
        ("number", "two", "result.json"),
        ("claims", [], "no primary claim"),
        ("rows", [{"run": "x"}], "a run without a seed"),
        ("schema_version", 2, "schema version 2, this CountLens reads 1"),
    ],
)
def test_values_of_another_kind_are_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    path = write(tmp_path, make_result().to_dict() | {key: value})
    with pytest.raises(CountLensError, match=message):
        read_result(path)
