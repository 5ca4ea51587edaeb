"""Writing whole files: temporary files are removed when their writer is dead, and only then."""

import errno
import os
from pathlib import Path

import pytest

from models.atomic import atomic_path, remove_unfinished, write_text
from models.errors import CountLensError


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_path(path) as first:
        first.write_text("first")
        with atomic_path(path) as second:
            assert second != first
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_only_temporary_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    foreign = tmp_path / "thesis.unfinished"
    foreign.write_text("chapter 1")
    dead = tmp_path / "runs/model.safetensors.0123456789abcdef.unfinished"
    dead.parent.mkdir()
    dead.write_text("half")
    with atomic_path(tmp_path / "report.html") as living:
        living.write_text("whole")
        remove_unfinished(tmp_path)
        assert living.read_text() == "whole"
        assert foreign.is_file()
        assert not dead.exists()
    assert (tmp_path / "report.html").read_text() == "whole"


def test_a_folder_in_the_place_of_a_file_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "text.txt").mkdir()
    with pytest.raises(CountLensError, match="remove what stands in its place or choose another folder"):
        write_text(tmp_path / "text.txt", "x")


def test_a_read_only_disk_is_an_error_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "unlink"):  # a read-only disk refuses both, whether or not there is anything to remove
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(CountLensError, match=r"Read-only file system \(choose a folder that you may write to"):
        write_text(tmp_path / "folder/file", "text")
