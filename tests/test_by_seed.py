"""The table of verdicts by seed in the docs is the one that its script prints."""

from types import ModuleType

import pytest
from docs_scripts import DOCS, load_script


@pytest.fixture
def script() -> ModuleType:
    return load_script("by_seed")


@pytest.mark.parametrize(("page", "mechanism"), [("mechanism.md", True), ("results.md", False)])
def test_the_tables_in_the_docs_are_made_from_the_measurements(script: ModuleType, page: str, mechanism: bool) -> None:
    text = script.table_text(script.read_table(), mechanism)
    assert text in (DOCS / page).read_text(), "run python docs/by_seed.py"


def test_every_cell_of_the_tables_has_five_seeds(script: ModuleType) -> None:
    cells: dict[tuple[str, str], set[str]] = {}
    for row in script.read_table():
        cells.setdefault((row["cell"], row["probe"]), set()).add(row["seed"])
    assert {cell: seeds for cell, seeds in cells.items() if len(seeds) < 5} == {}


def test_seeds_are_counted_by_what_they_say(script: ModuleType) -> None:
    said = [("ring", "weak", "0.2", "a 0.1"), ("ring", "weak", "0.4", "a 0.3"), ("none", "none", "0.3", "a 0.9")]
    columns = ("label", "grade", "value", "numbers")
    rows = [
        {"cell": "mod10/a", "seed": str(seed), "probe": "mechanism"} | dict(zip(columns, row, strict=True))
        for seed, row in enumerate(said)
    ]
    line = script.table_text(rows, mechanism=True).splitlines()[-1]
    assert line.startswith("| `mod10/a` | mechanism | 3 | ring, weak: 2; none: 1 | 30 % (")
    assert "| a 20 % (" in line  # of the seeds that say "ring" alone
