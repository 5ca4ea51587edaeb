"""What lists show of a checkpoint is checked when its header is read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.headers import read_header
from models.errors import CountLensError

Write = Callable[..., Path]

WRONG: list[dict[str, Any]] = [
    {"scores": None},
    {"scores": {"ind": "100", "ood": 1.0}},
    {"scores": {"ind": 10**400, "ood": 1}},
    {"scores": {"ind": True, "ood": -0.1}},
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


@pytest.mark.parametrize("changes", WRONG, ids=range(len(WRONG)))
def test_a_value_of_the_wrong_kind_is_refused(changes: dict[str, Any], write_counter: Write, tmp_path: Path) -> None:
    path = write_counter(tmp_path / "a", **changes)
    with pytest.raises(CountLensError) as refused:
        read_header(path)
    assert next(iter(changes)).rstrip("s") in str(refused.value)


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
        assert len(reason) < len(str(tmp_path)) + 200


def test_what_a_counter_may_leave_out_is_left_out(write_counter: Write, tmp_path: Path) -> None:
    info = read_header(write_counter(tmp_path / "a", task=None, scores={}, step=None, seed=None, policy=None))
    assert (info.task, info.scores, info.step) == (None, {}, None)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing"):
        with pytest.raises(CountLensError, match="is no file"):
            read_header(path)
