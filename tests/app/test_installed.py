"""Installed from a wheel there are no shipped counters: commands and explorer say where they are looked for."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("app", "models", "probes", "training", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
RUN = "from app.cli import main; main()"
# Opens the first page of an explorer without a folder and of one with the folder that is given.
OPEN = """import sys
from importlib.util import find_spec
from streamlit.testing.v1 import AppTest
main, folder = find_spec("app.cli").origin.replace("cli.py", "visit.py"), sys.argv[1]
for arguments in ([], ["--folder", folder]):
    sys.argv = [main, *arguments]
    page = AppTest.from_file(main, default_timeout=120).run()
    assert not page.exception, page.exception
    print("PAGE", *(element.value for element in (*page.info, *page.caption)), sep="\\n")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as site-packages is, with what the wheel brings."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site-packages")
    return folder / "site-packages"


def called(installed: Path, cwd: Path, code: str, *arguments: object) -> str:
    """What a process prints, on both streams, that has only the installed files."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.run(
        command, cwd=cwd, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def test_commands_say_where_shipped_counters_are_looked_for(installed: Path, tmp_path: Path) -> None:
    looked_for = f"Shipped counters are looked for in {installed / 'checkpoints'}"
    listed = called(installed, tmp_path, RUN, "list")
    assert "no counters yet: train one with `countlens train`" in listed
    assert looked_for in listed
    assert "`countlens list FOLDER`" in listed
    assert "`countlens explore --folder FOLDER`" in listed
    assert called(installed, tmp_path, RUN, "list", "--json") == "[]\n"
    tables = called(installed, tmp_path, RUN, "tables")
    assert looked_for in tables
    assert "--scores FOLDER/scores.csv" in tables


def test_a_folder_that_is_pointed_to_is_listed_without_a_hint(installed: Path, tmp_path: Path) -> None:
    listed = called(installed, tmp_path, RUN, "list", ROOT / "checkpoints/mod10")
    assert "ape-2L" in listed
    assert "looked for" not in listed


def test_a_name_that_is_not_there_is_refused_with_the_place(installed: Path, tmp_path: Path) -> None:
    code = "from models.find import find_checkpoint; find_checkpoint('mod10/ape-2L')"
    refused = called(installed, tmp_path, code)
    assert "unknown checkpoint 'mod10/ape-2L'" in refused
    assert f"looked for in {installed / 'checkpoints'}" in refused
    assert "give the path of a counter" in refused


def test_the_zoo_says_where_without_telling_paths(installed: Path, tmp_path: Path) -> None:
    _, empty, with_counters = called(installed, tmp_path, OPEN, ROOT / "checkpoints/mod10").split("PAGE")
    for page in (empty, with_counters):
        assert "Shipped counters are looked for in the folder `checkpoints` beside the package `app`" in page
        assert "`countlens explore --folder FOLDER`" in page
        assert str(installed) not in page
    assert "There are no counters yet" in empty
    assert "There are no counters yet" not in with_counters
