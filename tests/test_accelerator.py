"""The GPU path without a GPU: runs `tests/accelerator` in a process that has the simulated device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("marks", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_training_and_probes_give_on_an_accelerator_what_they_give_on_the_cpu(marks: str) -> None:
    plugin = ["-p", "tests.accelerator.device", "-p", "no:xdist", "-p", "no:cacheprovider"]
    # What xdist and pytest tell their own workers is not for another pytest.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "-m", marks, "tests/accelerator"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "skipped" not in completed.stdout
