"""docs/architecture.md shows the code as it is."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def drawings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["imports", *(pytest.param(name, marks=pytest.mark.slow) for name in ("row", "checkpoint"))]
)
def test_the_page_has_the_drawing_that_the_script_makes(drawings: ModuleType, name: str) -> None:
    text = drawings.PAGE.read_text()
    assert drawings.with_drawing(text, name, drawings.DRAWINGS[name]()) == text, "run python docs/architecture.py"
