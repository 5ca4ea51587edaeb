"""Packages that ours is compared with and that no user needs: installed once, each into a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

CACHE = Path(__file__).parents[2] / ".cache"


def install_oracle(*requirements: str) -> Path:
    """A folder with these packages, without what they require.

    Where they cannot be had, the tests that need them are skipped; in CI they fail.
    """
    home = CACHE / requirements[0].replace("==", "-")
    CACHE.mkdir(exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not (home / "installed").exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home)]
            process = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
            if process.returncode and "CI" not in os.environ:
                pytest.skip(f"{requirements[0]} cannot be installed here: {process.stderr[-300:]}")
            assert process.returncode == 0, process.stderr
            (home / "installed").touch()
    return home
