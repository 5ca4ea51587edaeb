"""A cell's seeds are found wherever their weights are, and those that are missing are named."""

import shutil
from pathlib import Path

import pytest

from models.errors import CountLensError
from models.find import SHIPPED
from probes.cells import find_cell

CELL = "first_tok_heterogeneous/nope-1L"


def copy_seed(runs: Path, cell: str, seed: int, source: str = f"{CELL}/seed1") -> None:
    shutil.copytree(SHIPPED / source, runs / cell / f"seed{seed}")


def test_shipped_seeds_are_found_and_those_of_the_score_table_are_missing() -> None:
    cell = find_cell(CELL)
    assert cell.files == {1: SHIPPED / CELL / "seed1/model.safetensors"}
    assert set(cell.missing) >= {0, 2}
    assert cell.command.startswith("countlens sweep --task first_tok_heterogeneous --architecture nope --seed 0 2")


def test_runs_are_looked_into_first(tmp_path: Path) -> None:
    copy_seed(tmp_path, CELL, 1)
    copy_seed(tmp_path, CELL, 12)
    copy_seed(tmp_path, CELL, 3)
    (tmp_path / CELL / "seedling").mkdir()
    cell = find_cell(f"{CELL}/seed1", [1, 3, 12, 40], tmp_path)
    assert list(cell.files) == [1, 3, 12]
    assert all(path.is_relative_to(tmp_path) for path in cell.files.values())
    assert cell.missing == (40,)


def test_a_folder_of_seeds_is_a_cell(tmp_path: Path) -> None:
    copy_seed(tmp_path, "mine", 5)
    cell = find_cell(str(tmp_path / "mine"))
    assert list(cell.files) == [5]
    assert (cell.missing, cell.command) == ((), "")


def test_only_wanted_seeds_are_used(tmp_path: Path) -> None:
    copy_seed(tmp_path, CELL, 3)
    assert list(find_cell(CELL, [3], tmp_path).files) == [3]


def test_counters_of_other_settings_are_no_seeds_of_the_cell(tmp_path: Path) -> None:
    copy_seed(tmp_path, CELL, 7, "first_tok_heterogeneous/nope-1L-noncausal/seed0")
    with pytest.raises(CountLensError, match="not seeds of one cell: they differ in model"):
        find_cell(CELL, None, tmp_path)


def test_unknown_cells_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CountLensError, match="unknown cell 'mod10/apple-2L': did you mean mod10/ape-2L"):
        find_cell("mod10/apple-2L")
    with pytest.raises(CountLensError, match="is no folder"):
        find_cell(CELL, None, tmp_path / "nothing")
