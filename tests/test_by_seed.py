"""The table of verdicts by seed in the docs is the one that its script prints."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("by_seed", DOCS / "by_seed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_docs_is_made_from_the_measurements(script: ModuleType) -> None:
    text = script.table_text(script.read_table())
    assert text in (DOCS / "mechanism.md").read_text(), "run python docs/by_seed.py"


def test_seeds_are_counted_by_what_they_say(script: ModuleType) -> None:
    rows = [
        {"cell": "mod10/a", "seed": str(seed), "probe": "mechanism", "label": label, "grade": grade, "value": value}
        for seed, (label, grade, value) in enumerate(
            [("ring", "weak", "0.2"), ("ring", "weak", "0.4"), ("none", "none", "0.3")]
        )
    ]
    line = script.table_text(rows).splitlines()[-1]
    assert line.startswith("| `mod10/a` | mechanism | 3 | ring, weak: 2; none: 1 | 30 % (")
