"""A grid of runs, from a small TOML file or from flags, expanded and checked as a whole before anything starts.

    task = "mod10"
    architecture = ["nope", "sine", "ape"]     # a list is an axis: a run for each value

Several of these, with other keys or values, are cells:

    seeds = 3                                  # for every cell that says nothing else

    [[cells]]
    task = "mod10"
    architecture = ["nope", "sine", "ape"]

    [[cells]]
    task = "selective"
    bos = [false, true]
    architecture = "lstm"
    lengths = [[25, 50], [50, 100]]            # train and OOD length go together
    seeds = [0, 7]

Any option of `countlens train` is a key, with _ for - in its name.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from models.architectures import find_architecture
from models.border import IN_FILE, build, convert, field_hints, read_toml
from models.errors import CountLensError, shown, unknown
from training.config import MAX_RUNS, RunConfig, TrainConfig
from training.presets import cell_name, resolve

Cell = dict[str, Any]  # keys of the file, each with a value or a list of values

# The group of TrainConfig that has an option.
OPTIONS = {
    field.name: group for group, cls in field_hints(TrainConfig).items() if is_dataclass(cls) for field in fields(cls)
}
SEED = field_hints(TrainConfig)["seed"]
# Keys that are no options themselves, and the options that they stand for; an architecture is as in the paper's tables.
COMBINED = {"seeds": ("seed",), "architecture": ("family", "position"), "lengths": ("train_length", "ood_length")}
LISTS = ("lengths", "periods")  # keys of which a single value is a list itself
KEYS = ["preset", "seed", *COMBINED, *OPTIONS]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: where it goes, and everything that it is told."""

    name: str  # folder below the sweep's, as mod10/ape-2L/seed0
    config: RunConfig


def read_grid(path: Path) -> list[SweepRun]:
    """The runs of a grid file."""
    content = read_toml(path)
    cells = content.pop("cells", None)
    if cells is None and content and not any(_holds_tables(value) for value in content.values()):
        cells = [content]  # a file without [[cells]] is one cell
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, dict) for cell in cells):
        raise CountLensError(f"{path} has no cells: begin each with a line [[cells]]")
    return expand([content | cell for cell in cells])


def _holds_tables(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))


def expand(cells: list[Cell]) -> list[SweepRun]:
    """Every run of these cells, in their order and each once; the first that cannot be trained is named."""
    runs: dict[str, SweepRun] = {}
    origin: dict[str, str] = {}
    if sum(_run_count(cell, f"cell {number}") for number, cell in enumerate(cells, 1)) > MAX_RUNS:
        raise CountLensError(f"the grid has more than {MAX_RUNS:,} runs: make several smaller ones of it")
    for number, cell in enumerate(cells, 1):
        for choice, seeds in _choices(cell, f"cell {number}"):
            words = (f"{key} = {_shown(value)}" for key, value in (choice | {"seed": seeds[0]}).items())
            where = f"cell {number} ({', '.join(words)})"
            try:
                for seed in seeds:
                    convert("seed", seed, SEED, IN_FILE)
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


def _run_count(cell: Cell, where: str) -> int:
    """How many runs a cell stands for."""
    axes, seeds = _axes(cell, where)
    return len(seeds) * math.prod(len(values) for values in axes.values())


def _choices(cell: Cell, where: str) -> Iterator[tuple[Cell, Sequence[Any]]]:
    """The product over every key that has a list, each choice with its seeds: those cost nothing to resolve."""
    axes, seeds = _axes(cell, where)
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True)), seeds


def _axes(cell: Cell, where: str) -> tuple[dict[str, list[Any]], Sequence[Any]]:
    """The values of every key, and the seeds."""
    for key in cell:
        if key not in KEYS:
            raise CountLensError(f"{where}: {unknown('key', key, KEYS)}")
        for option in COMBINED.get(key, ()):
            if option in cell:
                raise CountLensError(f"{where}: {key} and {option} exclude each other: leave one out")
    axes = {key: _axis(key, value) for key, value in cell.items() if key != "seeds"}
    if "seed" not in cell:
        seeds = cell.get("seeds", 1)
        if isinstance(seeds, int) and not isinstance(seeds, bool):  # that many, from 0 on
            seeds = range(convert("seeds", seeds, Annotated[int, Meta(le=MAX_RUNS)], IN_FILE))
        axes["seeds"] = seeds
    for key, values in axes.items():
        if not isinstance(values, list | range) or not values:
            raise CountLensError(f"{where}: {key} = {shown(values)} gives no run: give a value or a list of them")
    seeds = axes.pop("seed" if "seed" in axes else "seeds")
    return axes, seeds


def _axis(key: str, value: Any) -> Any:
    """The values of a key; one pair of lengths, and the periods of one run, are one value."""
    if key in LISTS and isinstance(value, list) and value and not any(isinstance(item, list) for item in value):
        return [value]
    return value if isinstance(value, list) else [value]


def _config(choice: Cell) -> TrainConfig:
    """The config of one choice of values, with the default seed."""
    groups: dict[str, Cell] = {group: {} for group in OPTIONS.values()}
    for key, value in choice.items():
        if key == "architecture":
            groups["model"] |= architecture_options(value)
        elif key == "lengths":
            if not (isinstance(value, list) and len(value) == 2):
                raise CountLensError(f"lengths = {shown(value)}: give [train_length, ood_length]")
            groups["data"] |= dict(zip(("train_length", "ood_length"), value, strict=True))
        elif key in OPTIONS:
            groups[OPTIONS[key]][key] = value
    own = {key: value for key, value in choice.items() if key == "preset"}
    return build(TrainConfig, own | groups, "a cell")


def architecture_options(name: Any) -> dict[str, str]:
    """Family and position of what the paper's tables call an architecture.

    >>> architecture_options("rope"), architecture_options("lstm")
    ({'family': 'transformer', 'position': 'rope'}, {'family': 'lstm'})
    """
    found = find_architecture(name)
    options = {"family": found.family}
    return options if found.position is None else options | {"position": found.position}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() and len(value) < 100 else shown(value).lower()
