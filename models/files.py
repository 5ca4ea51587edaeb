"""Files that are either whole or absent: a kill or a full disk never leaves half of one under its name."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import CountLensError

UNFINISHED = ".unfinished"  # suffix of a file that is being written


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the name `path` when the block ends well, and is removed when it does not."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise writing_failed(path, error) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes the whole file or nothing."""
    with atomic_path(path) as unfinished:
        unfinished.write_text(text)


def remove_unfinished(folder: Path) -> None:
    """Clears what a killed writer left in a folder."""
    for path in folder.rglob(f"*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def writing_failed(path: Path, error: OSError) -> CountLensError:
    """The error for a file that could not be written."""
    way_out = {
        errno.ENOSPC: "free some space; whatever was saved before is whole",
        errno.EDQUOT: "free some of your quota; whatever was saved before is whole",
        errno.EACCES: "choose a folder that you may write to",
        errno.EROFS: "choose a folder that you may write to",
    }.get(error.errno or 0, "whatever was saved before is whole")
    return CountLensError(f"cannot write {path}: {error.strerror or error} ({way_out})")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
