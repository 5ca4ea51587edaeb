"""Pictures of moved position ids show the result's own numbers."""

import pytest

from app.figures.anchors import anchors_figure, moves_figure
from app.figures.registry import figures_of
from app.figures.share_bars import BLUE
from probes.mechanism.anchors import Anchors, anchor_probe
from probes.mechanism.handbuilt import handbuilt_counter
from training.tasks import make_task


@pytest.fixture(scope="module")
def result() -> Anchors:
    return anchor_probe(handbuilt_counter("first_position", make_task("mod10", bos=True)), rows=16)


def test_bars_are_the_scores_and_the_anchor_that_stands_out_is_blue(result: Anchors) -> None:
    bars, nulls = anchors_figure(result).data
    frame = result.to_frame()
    assert list(bars.customdata) == list(frame["anchor"])
    assert list(bars.x) == list(frame["accuracy"])
    assert list(bars.error_x.array) == pytest.approx(list(frame["high"] - frame["accuracy"]))
    assert [colour == BLUE for colour in bars.marker.color] == [True] + [False] * (len(frame) - 1)
    assert [None if value is None else value for value in nulls.x] == [
        score.permuted and score.permuted.value for score in result.anchors
    ]


def test_moves_are_drawn_with_what_changes_at_all(result: Anchors) -> None:
    follows, changes = moves_figure(result).data
    assert list(follows.x) == [move.follows.value for move in result.moves]
    assert list(changes.x) == [move.changes.value for move in result.moves]
    assert len(figures_of(result)) == 2
