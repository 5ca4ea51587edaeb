"""Where counters and their snapshots are."""

import os
from pathlib import Path

import pytest

from models.find import find_checkpoint, find_snapshots


def test_a_snapshot_of_a_shipped_counter_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "mod10/ape-2L/seed0/snapshots/step-0000003.safetensors"
    snapshot.parent.mkdir(parents=True)
    snapshot.touch()
    monkeypatch.setattr("models.find.SHIPPED", tmp_path)
    assert find_checkpoint("mod10/ape-2L/seed0/snapshots/step-0000003.safetensors") == snapshot


def test_snapshots_are_in_the_order_of_their_steps_and_odd_files_have_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    (folder / "step-5.safetensors").mkdir(parents=True)
    for name in ("step-10", "step-9", "step-0000010", "step-final", "step--1", "step-1e3", "step-٣", "notes"):
        (folder / f"{name}.safetensors").touch()
    (folder / "step-7.safetensors.123.unfinished").touch()
    os.mkfifo(folder / "step-8.safetensors")
    (folder / "step-6.safetensors").symlink_to("step-6.safetensors")
    (folder / "step-4.safetensors").symlink_to("nowhere")
    found = find_snapshots(tmp_path)
    assert list(found.by_step.items()) == [
        (9, folder / "step-9.safetensors"),
        (10, folder / "step-0000010.safetensors"),
    ]
    reasons = {path.name: reason for path, reason in found.odd.items()}
    assert reasons.pop("step-10.safetensors").endswith("are of the same step: remove one of them")
    for number in (4, 5, 6, 8):
        assert reasons.pop(f"step-{number}.safetensors") == f"step-{number}.safetensors is not a file"
    assert set(reasons) == {f"{name}.safetensors" for name in ("step-final", "step--1", "step-1e3", "step-٣", "notes")}
    assert all("step-NUMBER.safetensors" in reason for reason in reasons.values())


def test_links_out_of_the_run_are_followed_only_where_that_is_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "run/snapshots"
    folder.mkdir(parents=True)
    (tmp_path / "outside").touch()
    (folder / "kept").touch()
    (folder / "step-1.safetensors").symlink_to(tmp_path / "outside")
    (folder / "step-2.safetensors").symlink_to("kept")
    (folder / "step-3.safetensors").symlink_to("step-3.safetensors")
    assert list(find_snapshots(tmp_path / "run").by_step) == [1, 2]
    inside = find_snapshots(tmp_path / "run", follow_links=False)
    assert list(inside.by_step) == [2]
    assert "points outside of its run" in inside.odd[folder / "step-1.safetensors"]
    assert str(tmp_path) not in " ".join(inside.odd.values())


def test_a_run_whose_snapshots_lie_elsewhere_has_none_where_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/step-1.safetensors").touch()
    (tmp_path / "run/snapshots").symlink_to(tmp_path / "elsewhere")
    assert list(find_snapshots(tmp_path / "run").by_step) == [1]
    assert not find_snapshots(tmp_path / "run", follow_links=False).by_step
    assert not find_snapshots(tmp_path / "nothing").by_step
