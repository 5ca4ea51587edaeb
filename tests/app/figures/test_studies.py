"""Pictures of studies: what is drawn is the panel's data."""

import pytest

from app.figures.registry import figures_of
from app.figures.studies import panel_figure
from models.architectures import architectures
from probes.stats import Interval
from probes.studies.result import StudyResult
from probes.studies.study import Panel, Protocol, Series

LINE = Series("modulo 10", (0.0, 1.0), (Interval(90.0, 80.0, 95.0), Interval(40.0, 30.0, 60.0)))
IDEAL = Series("ideal", (0.0, 1.0), (Interval(100.0, 100.0, 100.0), Interval(50.0, 50.0, 50.0)), "dashed")
OTHER = Series("modulo 7", (0.0,), (Interval(1.0, 0.0, 2.0),))
PANEL = Panel("Dose", "detuning", "OOD %", (LINE, IDEAL, OTHER))


def test_points_and_intervals_are_the_panels() -> None:
    line, ideal, _ = panel_figure(PANEL).data
    assert list(line.x) == [0, 1]
    assert list(line.y) == [90, 40]
    assert list(line.error_y.array) == [5, 20]
    assert list(line.error_y.arrayminus) == [10, 10]
    assert ideal.error_y.array is None
    assert ideal.line.dash == "dash"


def test_a_dashed_series_has_the_colour_of_the_one_before_it_and_others_differ() -> None:
    line, ideal, other = panel_figure(PANEL).data
    assert line.line.color == ideal.line.color != other.line.color


def test_a_scheme_has_its_own_colour() -> None:
    figure = panel_figure(Panel("x", "", "", (Series("ape", (1.0,), (Interval(1.0, 0.0, 2.0),)),)))
    assert figure.data[0].line.color == architectures()["ape"].colour


def test_the_picture_is_also_told_in_words() -> None:
    alt = panel_figure(PANEL).layout.meta["alt"]
    assert "Dose. OOD % over detuning. modulo 10: 0.0 90, 1.0 40; ideal: 0.0 100, 1.0 50" in alt
    many = Series("runs", tuple(map(float, range(50))), (Interval(1.0, 1.0, 1.0),) * 50, "points")
    assert "runs: 50 points" in panel_figure(Panel("x", "", "", (many,))).layout.meta["alt"]


@pytest.mark.parametrize("categories", [True, False])
def test_names_are_no_numbers(categories: bool) -> None:
    figure = panel_figure(Panel("x", "", "", (LINE,), categories))
    assert figure.layout.xaxis.type == ("category" if categories else "linear")


def test_a_result_is_drawn_panel_by_panel() -> None:
    protocol = Protocol("", "", "", "", {}, "", (), "")
    result = StudyResult("toy", 9, "", protocol, "", False, 0, {}, (), (), (PANEL,))
    assert list(figures_of(result)) == ["Dose"]
