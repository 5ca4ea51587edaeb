"""Pictures of mechanism tests show the result's own numbers."""

import math

import pytest

from app.figures.mechanisms import claims_figure, places_figure
from app.figures.registry import figures_of
from app.figures.share_bars import BLUE, GREY
from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.verdict import Mechanisms, mechanisms
from training.tasks import make_task


@pytest.fixture(scope="module")
def result() -> Mechanisms:
    return mechanisms(handbuilt_counter("first_position", make_task("mod5", bos=True)), pairs=64)


def test_bars_are_the_claims_and_what_explains_the_counter_is_blue(result: Mechanisms) -> None:
    figure = claims_figure(result)
    frame = result.to_frame()
    shared = frame["hypothesis"].isin([one.name for one in result.hypotheses if one.swaps_of])
    drawn = frame[~shared | (frame["claim"] == "moved PIDs")]  # swaps that hypotheses share are drawn once
    bars = figure.data[0]
    assert list(bars.x) == list(drawn["accuracy"])
    assert list(bars.error_x.arrayminus) == pytest.approx(list(drawn["accuracy"] - drawn["low"]))
    blue = [name for name, colour in zip(drawn["hypothesis"], bars.marker.color, strict=True) if colour == BLUE]
    assert set(blue) == {"beginning", "first_position"}
    assert set(bars.marker.color) == {BLUE, GREY}
    marks = {trace.name: list(trace.x) for trace in figure.data[1:]}
    assert marks["best null"] == list(drawn["best null"])
    assert "first_position (strong) explain the counter" in figure.layout.meta["alt"]


def test_the_map_has_every_place_that_was_tried(result: Mechanisms) -> None:
    heat = places_figure(result).data[0]
    table = {(x, y): heat.z[row][column] for row, y in enumerate(heat.y) for column, x in enumerate(heat.x)}
    assert table["beginning: first", "L0 attn_out"] == 1
    tried = sum(not math.isnan(value) for value in table.values())  # NaN where a variable cannot be
    assert tried == len(result.searched)


def test_the_registry_knows_them(result: Mechanisms) -> None:
    assert len(figures_of(result)) == 2
