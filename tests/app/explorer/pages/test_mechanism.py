"""The page Mechanism: nothing is computed unasked; distances, swaps and seeds are drawn as they are in the result."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from shipped import shipped

from app.explorer.snapshots import open_snapshots
from app.figures.swaps import distances_figure, hypotheses_figure, swaps_figure
from models.errors import CountLensError
from models.find import SHIPPED
from probes.mechanism.swapped_tokens import SwappedToken, SwappedTokens

TOKENS = (
    SwappedToken(5, 9, 9.0, 12.0, "5", "5", "8", "8", True, "trained"),
    SwappedToken(6, 10, 10.0, 11.0, "6", "6", "7", "6", True, "trained"),
    SwappedToken(7, 11, 11.0, 11.0, "7", "7", "7", "7", False, "trained"),
)


def test_it_asks_before_it_computes(open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]) -> None:
    app = open_page("mechanism", counter=shipped("mod10/ape-2L"))
    assert not app.exception
    assert "Switch the test on" in app.info[0].value
    assert not figures(app)


@pytest.mark.slow
def test_a_claim_opens_the_swaps_that_it_counts(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("mechanism", counter=shipped("mod10/ape-2L"), mechanism="true", claim="beginning: first")
    assert not app.exception
    assert len(figures(app)) == 4
    assert "swaps, one per column" in figures(app)[2]["layout"]["meta"]["alt"]
    assert "first" in figures(app)[2]["layout"]["meta"]["alt"]


def test_claims_are_drawn_by_implied_distance_and_a_cell_names_its_claim() -> None:
    frame = pd.DataFrame(
        {
            "hypothesis": ["beginning", "beginning", "first_position"],
            "claim": ["answers", "own", "own"],
            "place": ["", "L0 q", "L0 q"],
            "accuracy": [1.0, 0.9, 0.9],
            "below 1": [None, 0.2, 0.2],
            "beyond": [None, 0.7, 0.7],
            "longer rows": [None, None, None],
        }
    )
    figure = distances_figure(SimpleNamespace(to_frame=lambda: frame))  # type: ignore[arg-type]
    (cells,) = figure.data
    assert list(cells.x) == ["trained", "below 1", "beyond"]
    assert [list(row) for row in cells.z] == [[0.9, 0.2, 0.7]]  # claims that hypotheses share are drawn once
    assert cells.customdata[0][1][0] == "beginning: own"


def test_swaps_are_judged_by_the_prediction_where_it_tells_something() -> None:
    result = SwappedTokens("beginning", "own", "PID of the token", "L0 q", TOKENS)
    *_, after = swaps_figure(result).data[0].z
    assert list(after[:3]) == [1, -1, 0]
    assert "1 of 2 swaps that tell something come out as beginning predicts" in result.verdict.sentence


def test_hypotheses_stand_counter_by_counter_and_what_explains_nothing_is_empty() -> None:
    def result(score: float, surplus: float, grade: str) -> Any:
        worst = SimpleNamespace(surplus=surplus)
        tested = SimpleNamespace(name="beginning", score=SimpleNamespace(value=score), grade=grade, worst=worst)
        return SimpleNamespace(hypotheses=(tested,), winner=tested if grade != "none" else None)

    figure = hypotheses_figure(result(0.9, 0.8, "strong"), result(0.6, 0.3, "none"), names=["seed0", "seed1"])
    (cells,) = figure.data
    assert [list(row) for row in cells.z] == [[0.8, 0.0]]
    assert [list(row) for row in cells.text] == [["90%<br>strong", ""]]
    assert list(cells.x) == ["seed0", "seed1"]
    assert figure.layout.meta["alt"].endswith("The best: seed0 beginning; seed1 none.")


@pytest.mark.slow
def test_the_mechanism_is_tested_at_every_snapshot_and_a_click_on_one_chooses_it(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    counter = shipped("mod10/ape-2L")
    app = open_page("mechanism", counter=counter, mechanism="true", over_training="true")
    assert not app.exception
    *_, cells = [figure["data"][0] for figure in figures(app)]
    kept = sorted(int(path.stem.removeprefix("step-")) for path in (SHIPPED / counter / "snapshots").iterdir())
    assert cells["x"] == [str(step) for step in kept]
    assert cells["customdata"][0] == [[str(step)] for step in kept]  # what a click on a cell chooses
    beginning = cells["z"][cells["y"].index("beginning")]
    assert beginning[0] == 0  # an untrained counter follows no algorithm
    assert beginning[-1] > 0.3


def test_a_run_without_snapshots_says_how_to_get_some() -> None:
    subject = SimpleNamespace(
        name="mod10/sine-2L/seed0", path=SHIPPED / shipped("mod10/sine-2L") / "model.safetensors", reference="x"
    )
    with pytest.raises(CountLensError, match="--snapshots 12"):
        open_snapshots(subject)  # type: ignore[arg-type]
