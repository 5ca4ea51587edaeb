"""Files that are either whole or absent: a kill or a full disk never leaves half of one under its name."""

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from models.errors import CountLensError

UNFINISHED = ".unfinished"  # suffix of a file that is being written
_TEMPORARY = re.compile(rf"(.+)\.[0-9a-f]{{16}}{re.escape(UNFINISHED)}")  # the target's name and a random part


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to. It is renamed to `path` if the block succeeds, and removed if it fails."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create_locked(unfinished) as file:
            yield unfinished
            os.fsync(file)
            os.replace(unfinished, path)
        _flush(path.parent)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses even to remove what is not there
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise writing_failed(path, error) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with atomic_path(path) as unfinished:
        unfinished.write_text(text)


def unfinished_target(name: str) -> str | None:
    """The name that a temporary file of `atomic_path` will get; None if `name` is not such a temporary file.

    >>> unfinished_target("config.json.0123456789abcdef.unfinished"), unfinished_target("thesis.unfinished")
    ('config.json', None)
    """
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def remove_unfinished(folder: Path) -> None:
    """Removes temporary files whose writer has died. Those of living writers and all other files stay."""
    for path in folder.rglob(f"*{UNFINISHED}"):
        if unfinished_target(path.name) is not None and path.is_file():
            with suppress(OSError), path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer is alive
                path.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError inside the block into a CountLensError that names `path` and the way out."""
    try:
        yield
    except OSError as error:
        raise writing_failed(path, error) from error


def writing_failed(path: Path, error: OSError) -> CountLensError:
    """The error to raise when `path` could not be written, with advice that fits the cause."""
    way_out = {
        errno.ENOSPC: "free some space; whatever was saved before is whole",
        errno.EDQUOT: "free some of your quota; whatever was saved before is whole",
        errno.EACCES: "choose a folder that you may write to",
        errno.EPERM: "choose a folder that you may write to",
        errno.EROFS: "choose a folder that you may write to",
    }.get(error.errno or 0, "remove what stands in its place or choose another folder; what was saved before is whole")
    return CountLensError(f"cannot write {path}: {error.strerror or error} ({way_out})")


def _create_locked(path: Path) -> BinaryIO:
    """A new file, locked until it is closed: the lock tells `remove_unfinished` that its writer is alive."""
    while True:
        file = path.open("xb")
        # A file system without locks is fine: there `remove_unfinished` cannot lock either, and removes nothing.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()  # `remove_unfinished` came between creating and locking: create it again


def _flush(folder: Path) -> None:
    """Waits until the folder's list of files is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
