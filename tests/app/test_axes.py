"""Every option of `countlens train` is an axis of `countlens sweep`, with its type, its range and its help."""

from typing import Any, get_args, get_type_hints

import pytest

from app.axes import Axes, make_cell
from models.border import field_hints
from models.errors import CountLensError
from training.config import TrainConfig
from training.sweep.grid import KEYS, OPTIONS, expand

HINTS = get_type_hints(Axes, include_extras=True)


def test_the_axes_are_the_keys_of_a_grid_file() -> None:
    assert sorted(HINTS) == sorted(KEYS)
    assert {"preset", "seed", *OPTIONS} <= set(HINTS)


def test_every_axis_has_the_help_of_its_option() -> None:
    texts = {name: get_args(hint)[-1].help for name, hint in HINTS.items()}
    assert all(texts.values())
    assert texts["steps"] == "training steps"
    assert texts["d_mlp"] == "width of the MLP's hidden layer (4 * d_model)"


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 3), ("lr", 0.5), ("position", "rope"), ("causal", False), ("schedule", "constant"), ("threads", 2)],
)
def test_a_value_reaches_the_run(name: str, value: Any) -> None:
    (run,) = expand([make_cell({name: (value,)})])
    group = getattr(run.config, OPTIONS[name])
    assert getattr(group, name) == value
    assert getattr(group, name) != getattr(field_hints(TrainConfig)[OPTIONS[name]](), name)


def test_periods_are_written_with_commas() -> None:
    runs = expand([make_cell({"position": ("rope",), "periods": ("10,20", "10.37")})])
    assert [run.config.model.periods for run in runs] == [(10, 20), (10.37,)]


def test_a_switch_without_a_value_is_on() -> None:
    assert make_cell({"bos": (), "compile": (), "causal": (False,)}) == {
        "bos": [True],
        "compile": [True],
        "causal": [False],
    }


def test_an_axis_without_a_value_is_refused() -> None:
    with pytest.raises(CountLensError, match=r"steps = \[\] gives no run: give a value"):
        expand([make_cell({"steps": ()})])


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"lr": (0.1, -1.0)}, r"--lr \(0.1, -1.0\): must be at least 0 and at most 100 each"),
        ({"warmup_steps": (-1,)}, r"--warmup-steps \(-1,\): must be at least 0"),
        ({"seed": (2**32,)}, "--seed .*: must be at least 0 and at most 4,294,967,295 each"),
        ({"periods": ("10 20",)}, "--periods '10 20': write the periods of a run with commas, as 10,20"),
        ({"lengths": ("50-100",)}, "--lengths '50-100': write the train and the OOD length as 50to100"),
    ],
)
def test_values_out_of_range_are_named_as_the_flag_that_was_typed(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        make_cell(axes)
