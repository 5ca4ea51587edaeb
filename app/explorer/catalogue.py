"""Which counters there are, below the folders that the explorer was started with. Reads headers only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from models.errors import CountLensError
from models.find import RUNS, SHIPPED, named_counters, snapshots_beside
from models.info import CheckpointInfo, read_info

DEFAULT = "mod10/ape-2L"  # a counter that counts: what a first visit shows


@dataclass(frozen=True)
class FileKey:
    """Which file, as it is now: another mtime or size is another counter."""

    path: Path
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, path: Path) -> "FileKey":
        """The key of a file."""
        try:
            found = path.stat()
        except OSError as error:
            raise CountLensError(f"cannot read {path.name}: {error.strerror}") from error
        return cls(path, found.st_mtime_ns, found.st_size)


@dataclass(frozen=True)
class Entry:
    """A counter on disk, sound or broken."""

    name: str  # as the URL has it: its folder below one of the explorer's
    path: Path
    reference: str  # what load_counter takes in a notebook
    info: CheckpointInfo | None  # None where the file is broken
    broken: str | None = None  # why

    @cached_property
    def snapshots(self) -> dict[int, Path]:
        """Checkpoints kept during training, by step."""
        return snapshots_beside(self.path)


@dataclass(frozen=True)
class Catalogue:
    """The counters below some folders, by name."""

    folders: tuple[Path, ...]
    entries: dict[str, Entry]

    @property
    def sound(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.info is not None]

    @property
    def broken(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.info is None]

    @property
    def default(self) -> str | None:
        """The counter that a first visit shows."""
        names = [entry.name for entry in self.sound]
        return next((name for name in names if name.startswith(DEFAULT)), names[0] if names else None)

    def below(self, typed: str) -> "Catalogue":
        """The part below a typed folder. One outside of the explorer's own folders is refused, and not looked at."""
        folder = self._inside(typed)
        kept = {name: entry for name, entry in self.entries.items() if entry.path.resolve().is_relative_to(folder)}
        if not kept:
            raise CountLensError(f"{typed} holds no counter: leave the field empty to see all")
        return Catalogue(self.folders, kept)

    def _inside(self, typed: str) -> Path:
        bases = [Path(), *self.folders]
        for base in bases:
            folder = (base / typed).resolve()
            if any(folder.is_relative_to(allowed) for allowed in self.folders) and folder.is_dir():
                return folder
        names = ", ".join(folder.name for folder in self.folders)
        raise CountLensError(
            f"{typed} is no folder below those that the explorer was started with ({names}): start it with "
            f"`countlens explore --folder {typed}`"
        )


def start_folders(extra: Sequence[Path]) -> tuple[Path, ...]:
    """The folders that may be read: shipped counters, ./runs, and those given at the start."""
    for folder in extra:
        if not folder.is_dir():
            raise CountLensError(f"--folder {folder} is no folder")
    return tuple(dict.fromkeys(folder.resolve() for folder in (SHIPPED, RUNS, *extra) if folder.is_dir()))


def read_catalogue(folders: tuple[Path, ...]) -> Catalogue:
    """Every counter below these folders. A name that is taken is led by its folder's."""
    entries: dict[str, Entry] = {}
    for folder in folders:
        for short, path in named_counters((folder,)):
            name = f"{folder.name}/{short}" if short in entries or short == "." else short
            if name not in entries:
                entries[name] = _entry(name, path, folder, folders)
    return Catalogue(folders, entries)


def _entry(name: str, path: Path, folder: Path, folders: tuple[Path, ...]) -> Entry:
    reference = name if folder == SHIPPED else _shown(path.parent)
    try:
        if not any(path.resolve().is_relative_to(allowed) for allowed in folders):
            raise CountLensError(f"{path.name} points outside of the explorer's folders: copy the file there")
        return Entry(name, path, reference, read_info(path))
    except CountLensError as error:
        return Entry(name, path, reference, None, str(error).replace(str(path), path.name))


def _shown(path: Path) -> str:
    """The path as one would write it: from here, where it is below."""
    here = Path().resolve()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


def snapshot_reference(entry: Entry, path: Path) -> str:
    """What load_counter takes for a file of this run."""
    return entry.reference if path == entry.path else _shown(path)
