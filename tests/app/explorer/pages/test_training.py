"""The page Training, and its pictures that move."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shipped import shipped

from app.figures.dynamics import BEFORE_THE_FIRST, dynamics_figure
from app.figures.growth import accuracy_growth_figure, pca_growth_figure
from app.figures.style import cyclic_colours
from models.find import SHIPPED
from probes.over_training.dynamics import Dynamics
from probes.over_training.growth import AccuracyGrowth, PcaGrowth
from probes.sites import Site

STEPS = np.array([0, 10, 100, 1000])
ACCURACY = AccuracyGrowth(STEPS, np.arange(12.0).reshape(4, 3), trained_up_to=2)
COORDINATES = np.random.default_rng(0).normal(size=(4, 6, 2)) * np.array([1, 2, 3, 9])[:, None, None]
COMPONENTS = PcaGrowth(Site("resid_post", 0), 3, STEPS, np.arange(6), COORDINATES, np.array([0.1, 0.2, 0.3, 0.9]))


@pytest.mark.parametrize(("step", "snapshot"), [(None, 3), (100, 2), (999, 2), (0, 0)])
def test_a_moving_picture_begins_at_the_chosen_step_and_has_a_frame_a_snapshot(step: int | None, snapshot: int) -> None:
    figure = accuracy_growth_figure(ACCURACY, step)
    np.testing.assert_array_equal(figure.data[0].y, ACCURACY.percent[snapshot])
    assert figure.layout.sliders[0].active == snapshot
    assert [frame.name for frame in figure.frames] == ["0", "10", "100", "1,000"]
    for frame, percent in zip(figure.frames, ACCURACY.percent, strict=True):
        np.testing.assert_array_equal(frame.data[0].y, percent)
    assert [one.args[0][0] for one in figure.layout.sliders[0].steps] == [frame.name for frame in figure.frames]


def test_axes_hold_all_frames_and_stay() -> None:
    figure = pca_growth_figure(COMPONENTS)
    for axis, number in ((figure.layout.xaxis, 0), (figure.layout.yaxis, 1)):
        low, high = axis.range
        assert low < COORDINATES[..., number].min()
        assert high > COORDINATES[..., number].max()
    assert not any(frame.layout.xaxis.range for frame in figure.frames)
    assert list(figure.data[0].marker.color) == [cyclic_colours(3)[pid % 3] for pid in range(6)]


def test_a_line_stands_at_the_chosen_step_of_every_curve() -> None:
    found = Dynamics(STEPS, {"ind": np.arange(4.0), "ood": np.arange(4.0)}, {}, {})
    without, with_step, at_the_start = (dynamics_figure(found, step) for step in (None, 100, 0))
    more = len(with_step.layout.shapes) - len(without.layout.shapes)
    assert more == 2
    assert sum(shape.x0 == shape.x1 == 100 for shape in with_step.layout.shapes) == 2
    assert sum(shape.x0 == shape.x1 == BEFORE_THE_FIRST for shape in at_the_start.layout.shapes) == 2


def test_the_chosen_step_is_marked_and_drives_the_picture(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    counter = shipped("mod10/ape-2L")
    steps = sorted(int(path.stem.removeprefix("step-")) for path in (SHIPPED / counter / "snapshots").iterdir())
    step = steps[12]
    app = open_page("training", counter=counter, step=str(step))
    moving, curves = figures(app)
    assert moving["layout"]["sliders"][0]["active"] == 12
    assert moving["data"][0]["y"] == moving["frames"][12]["data"][0]["y"]
    assert len(moving["frames"]) == len(steps)
    assert sum(shape["x0"] == shape["x1"] == step for shape in curves["layout"]["shapes"]) == 5
    app.sidebar.select_slider(key="step").set_value("0").run()
    assert figures(app)[0]["layout"]["sliders"][0]["active"] == 0
    assert figures(app)[0]["frames"] == moving["frames"]


def test_components_of_any_site_can_be_seen_to_grow(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("training", counter=shipped("mod10/spe-2L"), moving="components", site="mlp_post", layer="1")
    assert "at L1 mlp_post" in figures(app)[0]["layout"]["meta"]["alt"]
    app.selectbox(key="site").select("embed").run()
    assert not app.exception
    assert "at embed" in figures(app)[0]["layout"]["meta"]["alt"]


def test_a_run_without_snapshots_says_how_to_get_some(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("training", counter=shipped("mod10/lstm-1L"))
    assert not figures(app)
    assert "`--snapshots 12`" in app.info[0].value
