"""The axes of `countlens sweep`: every option of `countlens train`, each with one value or several.

No torch here: `--help` must be quick.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType
from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin

from msgspec import Meta
from typing_extensions import Doc
from tyro.conf import arg

from models.border import check_arguments, field_hints
from models.errors import CountLensError
from training import config
from training.config import MAX_RUNS, TrainConfig

# The comment at each field of the configs, which is also the help of `countlens train`.
HELP = dict(re.findall(r"^    (\w+): .*  # (.+)$", inspect.getsource(config), re.MULTILINE))
BOS = {"without": [False], "with": [True], "both": [False, True]}
USUAL = ("task", "architecture", "n_layers", "bos", "lengths", "seeds", "preset")  # come first in the help


def _options(cls: Any = TrainConfig) -> dict[str, Any]:
    """The type of every option of `countlens train`."""
    hints: dict[str, Any] = {}
    for name, hint in field_hints(cls).items():
        hints |= _options(hint) if is_dataclass(hint) else {name: hint}
    return hints


def _type_and_help(name: str, hint: Any) -> tuple[Any, str]:
    """The type of an option, and its help: from the `Doc` of its annotation, or from the comment at its field."""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, Doc):
            return get_args(hint)[0], note.documentation
    return hint, HELP[name]


def _axis(hint: Any, help_text: str) -> Any:
    """The type of an axis of such values, as tyro reads it."""
    kind = get_args(hint)[0] if NoneType in get_args(hint) else hint
    if get_origin(kind) is Literal:
        metavar = f"{{{','.join(get_args(kind))}}}"
    else:
        metavar = "{True,False}" if kind is bool else next(iter(get_args(kind)), kind).__name__.upper()
    axis = tuple[kind, ...]  # type: ignore[valid-type]
    return Annotated[axis, arg(help=help_text, metavar=f"{metavar} ...", help_behavior_hint="")]


SWITCHES = {name for name, hint in _options().items() if hint is bool}
AXES = {name: _axis(*_type_and_help(name, hint)) for name, hint in _options().items()} | {
    "architecture": _axis(str, "positional schemes and recurrent families, in place of --position and --family"),
    "bos": _axis(Literal["without", "with", "both"], "begin each row with a special first token"),
    "lengths": _axis(str, "train and OOD lengths, as 50to100"),
    "periods": _axis(str, "periods of rope's or sine's first waves, as 10,20"),
    "seeds": Annotated[
        Annotated[int, Meta(ge=1, le=MAX_RUNS)], arg(help="how many seeds, from 0 on (1)", help_behavior_hint="")
    ],
}
# The axes that a command line has: only those among its arguments.
Axes = TypedDict("Axes", {name: AXES[name] for name in (*USUAL, *AXES)}, total=False)  # type: ignore[misc]


def make_cell(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The axes as a cell of a grid file.

    >>> make_cell({"task": ("mod10",), "lr": (0.1, 0.2), "bos": ("both",), "lengths": ("50to100",), "tensorboard": ()})
    {'task': ['mod10'], 'lr': [0.1, 0.2], 'bos': [False, True], 'lengths': [[50, 100]], 'tensorboard': [True]}
    """
    check_arguments(Axes, axes)
    cell = {name: list(values) if isinstance(values, tuple) else values for name, values in axes.items()}
    if "bos" in cell:
        cell["bos"] = [value for word in cell["bos"] for value in BOS[word]]
    if "lengths" in cell:
        cell["lengths"] = [_length_pair(text) for text in cell["lengths"]]
    if "periods" in cell:
        cell["periods"] = [_periods(text) for text in cell["periods"]]
    # A switch without a value is on, as with `countlens train`: --tensorboard.
    return cell | {name: [True] for name in SWITCHES & cell.keys() if not cell[name]}


def _length_pair(text: str) -> list[int]:
    pair = re.fullmatch(r"([0-9]{1,9})to([0-9]{1,9})", text)
    if pair is None:
        raise CountLensError(f"--lengths {text!r}: write the train and the OOD length as 50to100")
    return [int(pair[1]), int(pair[2])]


def _periods(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise CountLensError(f"--periods {text!r}: write the periods of a run with commas, as 10,20") from error
