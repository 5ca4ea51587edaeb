"""`countlens list` shows every file: a counter, or the reason why it is none."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from app.cli import main

Write = Callable[..., Path]

WRONG: list[dict[str, Any]] = [
    {"scores": None},
    {"scores": {"ind": "100", "ood": 1.0}},
    {"scores": {"ind": 10**400, "ood": 1}},
    {"scores": {"ind": True, "ood": -0.1}},
    {"last_scores": {"ind": "100"}},
    {"task": {}},
    {"task": []},
    {"task": {"name": ["mod10"]}},
    {"task": {"name": "x" * 1000}},
    {"task": {"name": "mod10", "bos": "yes"}},
    {"task": {"name": "mod10", "train_length": 1.5}},
    {"model": None},
    {"model": {"n_layers": "x"}},
    {"model": {"n_layers": {}, "d_model": [1]}},
    {"model": {"position": 7}},
    {"family": None},
    {"policy": 3},
    {"step": "last"},
    {"seed": [0]},
]


def test_a_list_has_every_such_file_with_a_short_reason(write_counter: Write, tmp_path: Path) -> None:
    for number, changes in enumerate(WRONG):
        write_counter(tmp_path / str(number), **changes)
    write_counter(tmp_path / "sound")
    # In a process of its own: tests check types as dataclasses are made, a user's process does not.
    code = "from app.cli import main; main()"
    command = [sys.executable, "-c", code, "list", str(tmp_path), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counters = {counter["name"]: counter for counter in json.loads(output)}
    assert "error" not in counters.pop("sound")
    assert sorted(map(int, counters)) == list(range(len(WRONG)))
    for number, changes in enumerate(WRONG):
        reason = counters[str(number)]["error"]
        assert next(iter(changes)).rstrip("s") in reason
        assert len(reason) < len(str(tmp_path)) + 400


def test_what_a_counter_may_leave_out_is_left_out(
    write_counter: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_counter(tmp_path / "a", task=None, scores={}, last_scores={}, step=None, seed=None, policy=None)
    main(["list", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "1", ANY, "None", "?", "?", "?", "/", "?"]
