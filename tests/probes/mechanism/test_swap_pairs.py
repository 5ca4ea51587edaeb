"""Pairs tell something, and imply the distances that they are drawn for."""

import pytest
import torch

from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.hypotheses import MODULAR
from probes.mechanism.places import Place
from probes.mechanism.swap_pairs import BELOW, BEYOND, TRAINED, draw_pairs, implied_ranges
from training.tasks import NOT_SCORED, make_task

TASK = make_task("mod10", bos=True)
COUNTER = handbuilt_counter("first_position", TASK)
BEGINNING = {"beginning": MODULAR["beginning"]}
TOKEN = Place(("resid_pre",), (0,))


def test_ranges_are_those_of_training_with_bos_and_without() -> None:
    outcome = torch.tensor([-3.0, 0.0, 1.0, 49.0, 50.0, 51.0])
    with_bos = implied_ranges(TASK, outcome)
    without = implied_ranges(make_task("mod10"), outcome)
    assert with_bos[TRAINED].tolist() == [False, False, True, True, True, False]
    assert without[TRAINED].tolist() == [False, True, True, True, False, False]
    assert (with_bos[BELOW] | with_bos[TRAINED] | with_bos[BEYOND]).all()
    assert implied_ranges(make_task("selective"), outcome)[TRAINED].all()


@pytest.mark.parametrize(
    ("rows", "wanted", "least"), [("near", TRAINED, 0.8), ("far", BEYOND, 0.2), ("longer", BEYOND, 0.5)]
)
def test_pairs_imply_the_distances_that_they_are_drawn_for(rows: str, wanted: str, least: float) -> None:
    pairs = draw_pairs(COUNTER, TASK, BEGINNING, 128, 0, rows)
    for variable in BEGINNING["beginning"].variables:
        prediction = pairs.predict(TASK, BEGINNING["beginning"], variable, TOKEN)
        assert prediction.telling(wanted).float().mean() > least


def test_a_prediction_that_tells_something_is_no_ones_own_answer() -> None:
    pairs = draw_pairs(COUNTER, TASK, BEGINNING, 64, 0)
    for variable in BEGINNING["beginning"].variables:
        prediction = pairs.predict(TASK, BEGINNING["beginning"], variable, TOKEN)
        answers, tells = prediction.answers, prediction.tells
        assert tells.any()
        assert (answers[tells] != NOT_SCORED).all()
        assert (answers != pairs.labels)[tells].all()
        assert (answers != pairs.source.label_ids[pairs.row, pairs.source_column])[tells].all()


def test_longer_rows_are_longer_than_in_training() -> None:
    pairs = draw_pairs(COUNTER, TASK, BEGINNING, 16, 0, "longer")
    assert pairs.base.token_ids.shape[1] > TASK.train_length + TASK.prefix
    assert pairs.column.min() >= TASK.train_length


def test_a_window_needs_as_many_tokens_in_both_rows() -> None:
    pairs = draw_pairs(COUNTER, TASK, BEGINNING, 64, 0)
    window = Place(("pattern",), (0,), "window", n_queries=16)
    tells = pairs.predict(TASK, MODULAR["bos_dials"], MODULAR["bos_dials"].variables[0], window).tells
    assert tells.any()
    assert torch.minimum(pairs.column, pairs.source_column)[tells].min() >= 16
