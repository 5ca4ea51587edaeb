"""docs/architecture.md shows the code as it is."""

from types import ModuleType

import pytest
from docs_scripts import load_script


@pytest.fixture(scope="module")
def drawings() -> ModuleType:
    return load_script("architecture")


@pytest.mark.parametrize(
    "name", ["imports", *(pytest.param(name, marks=pytest.mark.slow) for name in ("row", "checkpoint"))]
)
def test_the_page_has_the_drawing_that_the_script_makes(drawings: ModuleType, name: str) -> None:
    text = drawings.PAGE.read_text()
    assert drawings.with_drawing(text, name, drawings.DRAWINGS[name]()) == text, "run python docs/architecture.py"
