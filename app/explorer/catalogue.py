"""Which counters there are, below the folders that the explorer was started with. Reads headers only.

Nothing outside of these folders is read, whatever a name, a link or a URL says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from app.escape import for_markdown, printable
from models.errors import CountLensError
from models.find import RUNS, SHIPPED, SNAPSHOTS, find_snapshots, named_counters, shipped_hint
from models.header import CheckpointInfo, read_info

MOST_HEADERS = 4096  # that are kept
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
            status = path.stat()
        except OSError as error:
            raise CountLensError(f"cannot read {path.name}: {error.strerror}") from error
        return cls(path, status.st_mtime_ns, status.st_size)


@dataclass(frozen=True)
class Entry:
    """A counter on disk, sound or broken."""

    name: str  # as the URL has it: its folder below one of the explorer's
    path: Path
    reference: str  # what load_counter takes in a notebook
    info: CheckpointInfo | None  # None where the file is broken
    broken: str | None = None  # why

    @property
    def snapshots(self) -> dict[int, Path]:
        """Checkpoints kept during training, by step."""
        return self._snapshots[0]

    @property
    def broken_snapshots(self) -> dict[str, str]:
        """Why a file among the snapshots cannot be read, by its name."""
        return self._snapshots[1]

    @cached_property
    def _snapshots(self) -> tuple[dict[int, Path], dict[str, str]]:
        return read_snapshots(self.path.parent)


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
    def broken_files(self) -> dict[str, str]:
        """Why a file cannot be read, by the counter's name or, of a snapshot, its path below."""
        reasons = {entry.name: entry.broken or "" for entry in self.broken}
        for entry in self.entries.values():
            for file, reason in entry.broken_snapshots.items():
                reasons[f"{entry.name}/{SNAPSHOTS}/{printable(file)}"] = reason
        return reasons

    def readable(self, text: object) -> str:
        """Foreign text as markdown that shows it as it is, with paths from the explorer's folders on.

        Where the server keeps its folders is not for every visitor to know.
        """
        shown = str(text)
        for folder in sorted((*self.folders, Path().resolve()), key=lambda folder: -len(folder.parts)):
            if folder.name:
                shown = shown.replace(f"{folder}/", "").replace(str(folder), folder.name)
        return for_markdown(shown)

    @property
    def without_shipped(self) -> str:
        """Where shipped counters are looked for and how to point to them; empty if they are there."""
        if SHIPPED in self.folders:
            return ""
        place = f"the folder `{SHIPPED.name}` beside the package `{__name__.split('.')[0]}`"
        return f"{shipped_hint(place)}: start the explorer with `countlens explore --folder FOLDER`."

    @property
    def default(self) -> str | None:
        """The counter that a first visit shows."""
        names = [entry.name for entry in self.sound]
        return next((name for name in names if name.startswith(DEFAULT)), names[0] if names else None)

    def below(self, typed: str) -> "Catalogue":
        """The part below a typed folder. One outside of the explorer's own folders is refused, and not looked at."""
        folder = self._inside(typed)
        kept = {name: entry for name, entry in self.entries.items() if _is_inside(_resolve(entry.path), (folder,))}
        if not kept:
            raise CountLensError(f"{typed} holds no counter: leave the field empty to see all")
        return Catalogue(self.folders, kept)

    def _inside(self, typed: str) -> Path:
        for base in (Path(), *self.folders):
            folder = _resolve(base / typed)
            if folder is not None and _is_inside(folder, self.folders) and folder.is_dir():
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
        _check_name(folder.resolve())
    return tuple(dict.fromkeys(folder.resolve() for folder in (SHIPPED, RUNS, *extra) if folder.is_dir()))


def read_catalogue(folders: tuple[Path, ...]) -> Catalogue:
    """Every counter below these folders. A name that is taken is led by its folder's."""
    entries: dict[str, Entry] = {}
    for folder in folders:
        for folder_name, path in named_counters((folder,)):
            short = printable(folder_name)  # it goes to the browser, which takes no bytes that are not UTF-8
            name = f"{printable(folder.name)}/{short}" if short in entries or short == "." else short
            if name not in entries:
                entries[name] = _entry(name, path, folder, folders)
    return Catalogue(folders, entries)


def _entry(name: str, path: Path, folder: Path, folders: tuple[Path, ...]) -> Entry:
    reference = name if folder == SHIPPED else _shown(path.parent, folder)
    try:
        return Entry(name, path, reference, _read_inside(path, folders))
    except CountLensError as error:
        return Entry(name, path, reference, None, str(error).replace(str(path), path.name))


def _read_inside(path: Path, folders: tuple[Path, ...]) -> CheckpointInfo:
    """The metadata of a checkpoint file, unless it lies elsewhere."""
    if not _is_inside(_resolve(path), folders):
        raise CountLensError(f"{path.name} points outside of the explorer's folders: copy the file there")
    _check_name(path)
    return _read_header(FileKey.of(path))


@lru_cache(maxsize=MOST_HEADERS)
def _read_header(key: FileKey) -> CheckpointInfo:
    """The metadata of a file, read once: folders are looked at every few seconds, and files seldom change."""
    return read_info(key.path)


def _check_name(path: Path) -> None:
    """Streamlit takes no path that is no text: on a disk a name can be any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise CountLensError(f"the name of {path} is no UTF-8 text: rename it") from None


def _resolve(path: Path) -> Path | None:
    """Where a path leads; None where it leads nowhere: no name of a file, or a link to itself."""
    try:
        resolved = path.resolve()
        resolved.is_dir()  # whether the file system takes the name at all
    except (OSError, ValueError, RuntimeError):
        return None
    return resolved


def _is_inside(path: Path | None, folders: tuple[Path, ...]) -> bool:
    return path is not None and any(path.is_relative_to(folder) for folder in folders)


def read_snapshots(run: Path) -> tuple[dict[int, Path], dict[str, str]]:
    """The snapshots in a run folder by step, and by name the files there that are none, with the reason."""
    files = find_snapshots(run, follow_links=False)
    sound: dict[int, Path] = {}
    broken = {path.name: reason for path, reason in files.odd.items()}
    for step, path in files.by_step.items():
        try:
            _read_header(FileKey.of(path))
            sound[step] = path
        except CountLensError as error:
            broken[path.name] = str(error).replace(str(path), path.name)
    return sound, broken


def _shown(path: Path, folder: Path) -> str:
    """The path as one would write it: from here, where it is below; else from the explorer's folder on.

    Where the server keeps that folder is not for every visitor to know; who started the explorer with it knows.
    """
    here = Path().resolve()
    return path.relative_to(here if path.is_relative_to(here) else folder.parent).as_posix()


def snapshot_reference(entry: Entry, path: Path) -> str:
    """What load_counter takes for a file of this run."""
    run = entry.path.parent
    return entry.reference if path == entry.path else f"{entry.reference}/{path.relative_to(run).as_posix()}"
