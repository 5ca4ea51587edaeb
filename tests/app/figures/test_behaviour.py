"""Figures of behaviour, learning dynamics and the logit lens: what is drawn is the result, and a sentence says it."""

import numpy as np
import plotly.graph_objects as go
import pytest

from app.figures.behaviour import confusion_figure, curve_of, position_figure, shift_figure
from app.figures.dynamics import dynamics_figure, order_figure
from app.figures.logit_lens import attribution_figure, lens_figure
from app.figures.positions import accuracy_figure
from probes.over_training.dynamics import Dynamics
from probes.over_training.order import CurveOrder, OrderOverRuns
from probes.reading.behaviour import Behaviour, PercentAt
from probes.reading.logit_lens import LogitLens
from probes.stats import Interval, Intervals

NAN = float("nan")


def shares(at: list[int], percent: list[float]) -> PercentAt:
    values = np.array(percent, dtype=float)
    scored = np.where(np.isnan(values), 0, 7)
    return PercentAt(np.array(at), values, values - 5, values + 5, scored)


def a_behaviour(why_no_shift: str | None = None) -> Behaviour:
    return Behaviour(
        task="mod10",
        trained_up_to=2,
        total={"ind": Interval(100.0, 99.0, 100.0), "ood": Interval(25.0, 20.0, 30.0)},
        constant={"ind": 50.0, "ood": 50.0},
        by_position={"ind": shares([1, 2], [100, 100]), "ood": shares([1, 2, 3, 4], [NAN, NAN, 50, 0])},
        answers=("1", "2"),
        confusion={"ind": np.array([[4, 0], [0, 4]]), "ood": np.array([[1, 3], [0, 0]])},
        by_shift={} if why_no_shift else {"ind": shares([0, 5], [100, 90]), "ood": shares([0, 5], [60, 20])},
        shift_p={} if why_no_shift else {"ind": 0.5, "ood": 0.001},
        why_no_shift=why_no_shift,
        paper=None,
    )


def a_dynamics() -> Dynamics:
    steps = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128])
    rising = np.array([0.0, 0, 0, 20, 40, 60, 80, 100, 100])
    later = np.array([0.0, 0, 10, 10, 30, 50, 70, 90, 100])
    return Dynamics(steps, {"ind": rising, "ood": later, "score": np.full(9, 0.5)}, {}, {})


def means(*values: float) -> Intervals:
    value = np.array(values, dtype=float)
    return Intervals(value, value - 0.5, value + 0.5)


def a_lens() -> LogitLens:
    return LogitLens(
        sites=("embed", "L0 attn", "L0 mlp"),
        accuracy={"ind": means(10, 20, 100), "ood": means(10, 10, 80)},
        probability={"ind": means(0.1, 0.2, 0.9), "ood": means(0.1, 0.1, 0.7)},
        constant={"ind": 10.0, "ood": 10.0},
        by_position=np.array([[10.0, 10, 10], [20, 20, NAN], [100, 100, 80]]),
        trained_up_to=2,
        parts=("embed", "L0H0", "L0 mlp"),
        attribution={"ind": means(-1, 2, 8), "ood": means(-2, 1, 5)},
        margin={"ind": 9.0, "ood": 4.0},
        worst_error=1e-6,
    )


ALL = [
    position_figure(a_behaviour()),
    shift_figure(a_behaviour()),
    shift_figure(a_behaviour("it has no positions")),
    confusion_figure(a_behaviour()),
    dynamics_figure(a_dynamics()),
    lens_figure(a_lens()),
    attribution_figure(a_lens()),
    accuracy_figure([curve_of(a_behaviour(), "mine", "ape")], 2),
]


@pytest.mark.parametrize("figure", ALL)
def test_every_figure_says_in_a_sentence_what_it_shows_and_can_be_written(figure: go.Figure) -> None:
    alt = figure.layout.meta["alt"]
    assert len(alt.split()) > 4
    assert alt.endswith(".")
    assert figure.to_json()


def test_accuracy_by_position_is_drawn_above_its_intervals_with_the_border() -> None:
    figure = position_figure(a_behaviour(), "mine", "ape")
    *bands, line = figure.data
    assert list(line.y) == [100, 100, 50, 0]
    assert [list(band.x) for band in bands] == [[1, 2], [1, 2], [3, 4], [3, 4]]
    assert [list(band.y) for band in bands[2:]] == [[45, -5], [55, 5]]
    assert [bool(band.fill) for band in bands] == [False, True, False, True]
    assert figure.layout.shapes[0].x1 == 2.5
    assert "100.0 % IND, 25.0 % OOD" in figure.layout.meta["alt"]
    assert "below 90 % first at position 3" in figure.layout.meta["alt"]


def test_the_curve_over_shifts_is_the_result_s() -> None:
    lines = [trace for trace in shift_figure(a_behaviour()).data if trace.name]
    assert [(line.name, list(line.x), list(line.y)) for line in lines] == [
        ("IND", [0, 5], [100, 90]),
        ("OOD", [0, 5], [60, 20]),
    ]


def test_without_shifts_the_figure_says_why() -> None:
    figure = shift_figure(a_behaviour("it has no positions"))
    assert not figure.data
    assert figure.layout.annotations[0].text == "it has no positions"


def test_confusions_are_percent_of_the_right_answer_s_tokens() -> None:
    ind, ood = confusion_figure(a_behaviour()).data
    assert np.array_equal(ind.z, [[100, 0], [0, 100]])
    np.testing.assert_array_equal(ood.z, [[25, 75], [NAN, NAN]])
    assert [list(row) for row in ood.text] == [["25", "75"], ["", ""]]
    assert list(ood.x) == list(ood.y) == ["1", "2"]


def test_many_answers_are_drawn_without_numbers_in_the_cells() -> None:
    few = a_behaviour()
    answers = tuple(str(number) for number in range(1, 41))
    many = Behaviour(**(vars(few) | {"answers": answers, "confusion": {"ind": np.eye(40, dtype=int)}}))
    (cells,) = confusion_figure(many).data
    assert cells.texttemplate is None
    assert list(confusion_figure(many).layout.xaxis.tickvals) == ["10", "20", "30", "40"]


def test_learning_curves_have_a_panel_each_with_their_rises() -> None:
    figure = dynamics_figure(a_dynamics())
    assert [trace.name for trace in figure.data] == ["ind", "ood", "score"]
    assert list(figure.data[0].x) == [0.5, 1, 2, 4, 8, 16, 32, 64, 128]  # there is no 0 on a logarithmic axis
    assert list(figure.data[0].customdata) == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    lines = [shape for shape in figure.layout.shapes if shape.type == "line"]
    assert [line.x0 for line in lines] == [4, 64, 1, 128]
    shaded = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [(shape.x0, shape.x1) for shape in shaded] == [(1, 128)] * 3
    headings = [annotation.text for annotation in figure.layout.annotations]
    assert headings[0].startswith("<b>accuracy at trained lengths</b>: rises from 4 to 64 (p = 0.0")
    assert headings[2] == "<b>score</b>: no sure rise (p = 1.000)"
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "10", "128"]


def test_orders_over_runs_are_stacked_bars() -> None:
    curves = (
        CurveOrder("clusters", ("before",) * 5 + ("overlapping",), 0.001),
        CurveOrder("ind", ("after",) * 6, 0.001),
    )
    figure = order_figure(OrderOverRuns(tuple("abcdef"), 0.001, curves))
    assert {bar.name: list(bar.x) for bar in figure.data} == {"before": [5, 0], "overlapping": [1, 0], "after": [0, 6]}
    assert "ind rises after it (after it in 6 of 6 runs" in figure.layout.meta["alt"]


def test_the_lens_is_a_map_of_sites_and_positions_beside_its_means() -> None:
    figure = lens_figure(a_lens())
    by_position, by_split = figure.data
    assert list(by_position.y) == ["embed", "L0 attn", "L0 mlp"]
    np.testing.assert_array_equal(by_position.z, a_lens().by_position)
    assert list(by_split.x) == ["IND", "OOD"]
    np.testing.assert_array_equal(by_split.z, [[10, 10], [20, 10], [100, 80]])
    assert figure.layout.shapes[0].x0 == 2.5


def test_attributions_are_bars_around_0_with_their_intervals() -> None:
    ind, ood = attribution_figure(a_lens()).data
    assert list(ind.y) == ["embed", "L0H0", "L0 mlp"]
    assert list(ind.x) == [-1, 2, 8]
    assert ind.name == "IND (margin 9.0)"
    assert list(ood.error_x.array) == list(ood.error_x.arrayminus) == [0.5, 0.5, 0.5]
