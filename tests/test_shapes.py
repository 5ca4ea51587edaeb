"""Shapes in signatures hold while models, training and probes run: tests of each, with checks.

`make test-all` makes these checks in all tests.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "tests/models/test_transformer.py",
    "tests/models/test_rnn.py",
    "tests/training/test_evaluate.py",
    "tests/probes/reading/test_behaviour.py",
    "tests/probes/patching/test_pairs.py",
)
PLANTED = """
import torch

from models import TransformerConfig, build_counter


def test_a_row_instead_of_a_batch():
    counter = build_counter(TransformerConfig(5, "ape"), torch.Generator())
    counter(torch.zeros(3, dtype=torch.long), torch.zeros(3, dtype=torch.long))
"""


def test_every_room_keeps_to_its_shapes_and_a_wrong_one_is_noticed(tmp_path: Path) -> None:
    """In a process of its own: what is imported without checks stays without."""
    (tmp_path / "test_planted.py").write_text(PLANTED)
    # What xdist and pytest tell their own workers is not for another pytest.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "--shapes", "-p", "no:xdist", "-p", "no:cacheprovider"]
    files = [*FILES, str(tmp_path / "test_planted.py")]
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "TypeCheckError" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 failed"), done.stdout
