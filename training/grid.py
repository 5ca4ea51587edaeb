"""A grid of runs, from a small TOML file or from flags, expanded and checked as a whole before anything starts.

    seeds = 3                                  # for every cell that says nothing else

    [[cells]]
    task = "mod10"
    architecture = ["nope", "sine", "ape"]     # a list is an axis: a run for each value

    [[cells]]
    task = "selective"
    bos = [false, true]
    architecture = "lstm"
    lengths = [[25, 50], [50, 100]]            # train and OOD length go together
    seeds = [0, 7]

Any option of `countlens train` is a key, with _ for - in its name.
"""

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from models.config import POSITION_NAMES
from models.errors import CountLensError, unknown
from models.families import FAMILIES
from training.config import DeviceOptions, ModelOptions, OptimiserOptions, RecordOptions, TaskOptions, TrainConfig
from training.presets import cell_name, resolve

Cell = dict[str, Any]  # keys of the file, each with a value or a list of values

GROUPS: dict[str, type] = {
    "data": TaskOptions,
    "model": ModelOptions,
    "optimiser": OptimiserOptions,
    "record": RecordOptions,
    "hardware": DeviceOptions,
}
OPTIONS = {field.name: (group, field.type) for group, cls in GROUPS.items() for field in fields(cls)}
# `architecture` stands for family and position together, as in the paper's tables.
KEYS = ["preset", "seeds", "architecture", "lengths", *(name for name in OPTIONS if name not in ("family", "position"))]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: where it goes, and everything that it is told."""

    name: str  # folder below the sweep's, as mod10/ape-2L/seed0
    config: TrainConfig  # resolved


def read_grid(path: Path) -> list[SweepRun]:
    """The runs of a grid file."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise CountLensError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CountLensError(f"{path} is no TOML file: {error}") from error
    cells = content.pop("cells", None)
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, dict) for cell in cells):
        raise CountLensError(f"{path} has no cells: begin each with a line [[cells]]")
    return expand([content | cell for cell in cells])


def expand(cells: list[Cell]) -> list[SweepRun]:
    """Every run of these cells, in their order and each once; the first that cannot be trained is named."""
    runs: dict[str, SweepRun] = {}
    origin: dict[str, str] = {}
    for number, cell in enumerate(cells, 1):
        for choice, seeds in _choices(cell, f"cell {number}"):
            shown = (f"{key} = {_shown(value)}" for key, value in (choice | {"seed": seeds[0]}).items())
            where = f"cell {number} ({', '.join(shown)})"
            try:
                for seed in seeds:
                    _check_seed(seed)
                config = resolve(_config(choice))
                name = cell_name(config)
            except CountLensError as error:
                raise CountLensError(f"{where}: {error}") from error
            for seed in seeds:
                run = SweepRun(f"{name}/seed{seed}", replace(config, seed=seed))
                if run.name in runs and runs[run.name].config != run.config:
                    raise CountLensError(
                        f"{where} and {origin[run.name]} are different runs of the same name {run.name}: leave one out"
                    )
                runs.setdefault(run.name, run)
                origin.setdefault(run.name, where)
    return list(runs.values())


def _choices(cell: Cell, where: str) -> Iterator[tuple[Cell, list[Any]]]:
    """The product over every key that has a list, each choice with its seeds: those cost nothing to resolve."""
    for key in cell:
        if key not in KEYS:
            raise CountLensError(f"{where}: {unknown('key', key, KEYS)}")
    seeds = cell.get("seeds", 1)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = list(range(seeds))
    axes = {key: _axis(key, value) for key, value in cell.items() if key != "seeds"}
    for key, values in (axes | {"seeds": seeds}).items():
        if not isinstance(values, list) or not values:
            raise CountLensError(f"{where}: {key} = {values!r} gives no run: give a value or a list of them")
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True)), seeds


def _axis(key: str, value: Any) -> Any:
    """The values of a key; one pair of lengths is one value."""
    if key == "lengths" and isinstance(value, list) and all(isinstance(item, int) for item in value):
        return [value]
    return value if isinstance(value, list) else [value]


def _config(choice: Cell) -> TrainConfig:
    """The config of one choice of values, with the default seed."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for key, value in choice.items():
        if key == "architecture":
            groups["model"] |= architecture_options(value)
        elif key == "lengths":
            if not (isinstance(value, list) and len(value) == 2):
                raise CountLensError(f"lengths = {value!r}: give [train_length, ood_length]")
            for name, length in zip(("train_length", "ood_length"), value, strict=True):
                groups["data"][name] = _checked(name, length)
        elif key in OPTIONS:
            groups[OPTIONS[key][0]][key] = _checked(key, value)
    options = {group: GROUPS[group](**values) for group, values in groups.items()}
    return TrainConfig(preset=choice.get("preset", "small"), **options)


def _check_seed(seed: Any) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise CountLensError(f"seed {seed!r}: seeds are whole numbers from 0 on")


def architecture_options(name: Any) -> dict[str, str]:
    """Family and position of what the paper's tables call an architecture.

    >>> architecture_options("rope"), architecture_options("lstm")
    ({'family': 'transformer', 'position': 'rope'}, {'family': 'lstm'})
    """
    if name in POSITION_NAMES:
        return {"family": "transformer", "position": name}
    recurrent = [family for family in FAMILIES if family != "transformer"]
    if name not in recurrent:
        raise unknown("architecture", str(name), [*POSITION_NAMES, *recurrent])
    return {"family": name}


def _checked(key: str, value: Any) -> Any:
    """The value, if the option takes such; a whole number is a float too."""
    kinds = _kinds(OPTIONS[key][1])
    literals = [kind for kind in kinds if not isinstance(kind, type)]
    types = [kind for kind in kinds if isinstance(kind, type) and kind is not type(None)]
    if literals:
        if value in literals:
            return value
    elif type(value) in types:
        return value
    elif float in types and type(value) is int:
        return float(value)
    allowed = " or ".join([repr(kind) for kind in literals] or [kind.__name__ for kind in types])
    raise CountLensError(f"{key} = {value!r}: must be {allowed}")


def _kinds(annotation: Any) -> list[Any]:
    """The types and literal values in an annotation."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if isinstance(annotation, UnionType) or get_args(annotation):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [annotation]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()
