"""Cells: groups of counters that differ only in their training seed, with the files of their weights."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import CountLensError, unknown
from models.find import CHECKPOINT, RUNS, SHIPPED, named_counters
from models.header import CheckpointInfo, read_info
from training.paper.score_table import SCORES, cell_of, read_scores
from training.sweep.same_cell import sweep_line

SEED_FOLDER = re.compile(r"seed(\d{1,18})")


@dataclass(frozen=True)
class CellSeeds:
    """All seeds of one kind of counter, such as `mod10/ape-2L`."""

    name: str
    files: dict[int, Path]  # checkpoints by seed, in order
    missing: tuple[int, ...]  # seeds without a checkpoint file: requested ones, or those in the table of shipped scores
    command: str  # trains the missing seeds; "" if none is missing


def find_cell(name: str, seeds: Sequence[int] | None = None, runs: Path | None = None) -> CellSeeds:
    """The cell of this name with the given seeds, or with all that are known.

    Checkpoints are searched in `runs`, among shipped counters and in ./runs. A seed at the end of the name is ignored.
    The name may also be the path of a folder that holds one folder per seed.
    """
    cell = cell_of(Path(name).as_posix())
    if runs is not None and not runs.is_dir():
        raise CountLensError(f"{runs} is no folder: --runs is the folder of a sweep's runs")
    folders = [*([runs] if runs is not None else []), SHIPPED, RUNS]
    files: dict[int, Path] = {}
    for folder in [*(folder / cell for folder in folders), Path(cell)]:
        files = _seeds_in(folder) | files  # the first folder that has a seed wins
    if not files:
        cells = sorted({cell_of(counter) for counter, _ in named_counters(tuple(folders))})
        raise CountLensError(f"{unknown('cell', name, cells)}: a cell is a counter's name without its seed")
    _check_alike(files)
    known = set(seeds) if seeds is not None else files.keys() | _scored_seeds(cell)
    missing = tuple(sorted(known - files.keys()))
    training = read_info(next(iter(files.values()))).training
    command = sweep_line(training, missing) if missing and training else ""
    return CellSeeds(cell, {seed: files[seed] for seed in sorted(files.keys() & known)}, missing, command)


def _seeds_in(folder: Path) -> dict[int, Path]:
    """The checkpoints of a folder's seeds, by seed."""
    paths = {path.parent.name: path for path in folder.glob(f"*/{CHECKPOINT}")}
    matches = {SEED_FOLDER.fullmatch(name): path for name, path in sorted(paths.items())}
    return {int(match[1]): path for match, path in matches.items() if match is not None}


def _scored_seeds(cell: str) -> set[int]:
    """The seeds of a cell in the table of scores: all that were trained, of which only the best one ships."""
    table = SHIPPED / SCORES
    return {row.seed for row in read_scores(table) if row.cell == cell} if table.is_file() else set()


def _check_alike(files: dict[int, Path]) -> None:
    """Refuses counters whose settings differ although they have the name of one cell."""
    (first, settings), *others = ((path, _settings(read_info(path))) for path in files.values())
    for path, other in others:
        different = [name for name in settings if settings[name] != other[name]]
        if different:
            raise CountLensError(
                f"{first} and {path} are not seeds of one cell: they differ in {', '.join(different)}; move one away"
            )


def _settings(info: CheckpointInfo) -> dict[str, Any]:
    """The settings in which all seeds of a cell must agree."""
    training = info.training or {}
    how = {name: training.get(name) for name in ("preset", "data", "optimiser")}
    return {"family": info.family, "model": info.model, "task": info.task, "policy": info.policy} | how
