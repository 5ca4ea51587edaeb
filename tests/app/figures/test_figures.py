"""Figures: what is drawn is the data."""

from app.figures.positions import Curve, accuracy_figure
from training.evaluate import Scores


def test_the_accuracy_curve_joins_ind_and_ood_at_the_border() -> None:
    scores = Scores({"ind": 50.0, "ood": 25.0}, {"ind": [100.0, 0.0], "ood": [None, None, 40.0, 10.0]})
    figure = accuracy_figure([Curve("mine", "ape", scores)], trained_up_to=2)
    (line,) = figure.data
    assert list(line.x) == [1, 2, 3, 4]
    assert list(line.y) == [100.0, 0.0, 40.0, 10.0]
    assert line.name == "mine"
    assert figure.layout.shapes[0].x1 == 2.5


def test_a_position_that_is_not_scored_leaves_a_gap() -> None:
    scores = Scores({"ind": 50.0, "ood": 25.0}, {"ind": [None, 100.0], "ood": [None, None, 40.0]})
    assert list(accuracy_figure([Curve("mine", "other", scores)], 2).data[0].y) == [None, 100.0, 40.0]
