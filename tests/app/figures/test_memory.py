"""Pictures of memories show the result's own numbers."""

import pytest

from app.figures.memory import memory_claims_figure, memory_parts_figure
from app.figures.registry import figures_of
from app.figures.share_bars import BLUE, GREY
from models import load_counter
from probes.mechanism.handbuilt_memory import handbuilt_memory
from probes.mechanism.memory_verdict import MemoryMechanisms, memory_mechanisms
from probes.mechanism.transplants import memory_parts
from training.tasks import make_task


@pytest.fixture(scope="module")
def result() -> MemoryMechanisms:
    return memory_mechanisms(handbuilt_memory("ring", make_task("mod10")))


def test_bars_are_claims_and_what_is_above_every_null_is_blue(result: MemoryMechanisms) -> None:
    figure = memory_claims_figure(result)
    bars = figure.data[0]
    claims = [(tested, claim) for tested in result.hypotheses for claim in tested.claims]
    assert list(bars.x) == [claim.score.value for _, claim in claims]
    assert [colour == BLUE for colour in bars.marker.color] == [tested.supported for tested, _ in claims]
    assert {BLUE, GREY} == set(bars.marker.color)
    frame = result.to_frame()
    assert list(figure.data[1].x) == list(frame["null_mean"])
    assert list(figure.data[2].x) == list(frame["null_highest"])
    assert "phase" in figure.layout.meta["alt"]
    assert len(figures_of(result)) == 1


def test_parts_are_drawn_alone_and_left_out() -> None:
    parts = memory_parts(load_counter("mod10/rnn-2L"), trials=16)
    bars = memory_parts_figure(parts).data[0]
    first = parts.parts[0]
    assert dict(zip(bars.customdata, bars.x, strict=True))["state of layer 0 alone"] == first.alone.value
    assert len(bars.x) == 5
    assert len(figures_of(parts)) == 1
