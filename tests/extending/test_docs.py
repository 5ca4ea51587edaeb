"""docs/extending.md quotes the files that the tests here add, word for word, and nothing of them ships."""

import ast
import doctest
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from overlay import EXTENDING, FILES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def function_of(path: Path) -> str:
    """The source of a file's only function."""
    text = path.read_text()
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return ast.get_source_segment(text, function) or ""


def entries() -> list[str]:
    """The statements of entries.py that are no imports."""
    text = (EXTENDING / "entries.py").read_text()
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return [ast.get_source_segment(text, node) or "" for node in nodes]


@pytest.mark.parametrize("name", FILES)
def test_the_guide_quotes_every_file_whole(name: str) -> None:
    assert FILES[name].read_text() in BLOCKS
    assert f"`{name}`" in TEXT


def test_the_guide_quotes_the_function_and_every_entry() -> None:
    assert any(function_of(EXTENDING / "alibi.py") in block for block in BLOCKS)
    for entry in entries():
        assert any(entry in block for block in BLOCKS), entry


def test_every_block_of_the_guide_is_one_of_them() -> None:
    sources = [path.read_text() for path in FILES.values()]
    sources.append(function_of(EXTENDING / "alibi.py") + "\n")
    left = "".join(block for block in BLOCKS if block not in sources)
    for entry in entries():
        left = left.replace(entry, "")
    assert left.strip() == ""


@pytest.mark.parametrize("name", FILES)
def test_examples_in_the_files_are_true(name: str) -> None:
    module = import_module(name.removesuffix(".py").replace("/", "."))
    assert doctest.testmod(module).failed == 0


def test_none_of_it_ships() -> None:
    for name in FILES:
        assert not (ROOT / name).exists()
    for registry in ("models/families.py", "models/schemes.py", "training/tasks/__init__.py", "training/recipes.py"):
        assert not re.search(r"gru|alibi|parity", (ROOT / registry).read_text(), re.IGNORECASE)


@pytest.mark.slow  # its quick siblings are the other files here
def test_the_whole_suite_holds_on_the_additions() -> None:
    """Every test that runs per family, scheme, task, probe or page; but not in a browser, whose server is elsewhere."""
    names = "gru or alibi or parity or reach"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "overlay", "-m", "not slow", "-k", names, "tests"]
    command += [f"--ignore=tests/{path}" for path in ("extending", "accelerator", "app/explorer/test_browser.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests/helpers"), "COLUMNS": "120"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-30000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed > 150
