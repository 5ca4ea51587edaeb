"""Finding counters: the shipped ones in `checkpoints/`, the user's own in `./runs`, or any by path."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.atomic import UNFINISHED
from models.errors import CountLensError, unknown

CHECKPOINT = "model.safetensors"  # a folder with this file is a counter
SHIPPED = Path(__file__).resolve().parent.parent / "checkpoints"
RUNS = Path("runs")
SNAPSHOTS = "snapshots"  # folder of a run
_SNAPSHOT_NAME = re.compile(r"step-([0-9]{1,15})\.safetensors")


def named_counters(folders: tuple[Path, ...] = (SHIPPED, RUNS)) -> Iterator[tuple[str, Path]]:
    """Yields (name, file) for every counter below these folders; the name is the path of its folder within them."""
    for folder in folders:
        for path in sorted(folder.rglob(CHECKPOINT)):
            yield path.parent.relative_to(folder).as_posix(), path


def find_checkpoint(name_or_path: str | Path) -> Path:
    """The checkpoint file for a path (of the file or of its run folder) or for a counter's name.

    A name may leave out the seed where there is only one, as among the shipped counters: `mod10/ape-2L`.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if (path / CHECKPOINT).is_file():
        return path / CHECKPOINT
    for folder in (SHIPPED, RUNS):
        for file in (folder / path / CHECKPOINT, folder / path):
            if file.is_file():
                return file
    for folder in (SHIPPED, RUNS):
        seeds = sorted((folder / path).glob(f"*/{CHECKPOINT}"))
        if len(seeds) == 1:
            return seeds[0]
        if seeds:
            names = ", ".join(seed.parent.relative_to(folder).as_posix() for seed in seeds)
            raise CountLensError(f"{name_or_path} is not one counter but several: name one of {names}")
    if path.is_dir():
        raise CountLensError(f"{path} holds no {CHECKPOINT}: name a run folder or a .safetensors file")
    hint = "" if SHIPPED.is_dir() else f". {shipped_hint()}: give the path of a counter"
    raise CountLensError(f"{unknown('checkpoint', str(name_or_path), [name for name, _ in named_counters()])}{hint}")


def shipped_hint(folder: object = SHIPPED) -> str:
    """A sentence for error messages when the shipped counters are missing: where they were expected, where to get them.

    `folder` is the name to print for that place, for readers who must not see its path.
    """
    return (
        f"Shipped counters are looked for in {folder}, which is not there (an installed package lacks them; the source "
        f"tree has them in {SHIPPED.name}/)"
    )


@dataclass(frozen=True)
class SnapshotFiles:
    """The snapshots of a run by their step, and the other files in the same folder."""

    by_step: dict[int, Path]
    odd: dict[Path, str]  # other files, each with the reason why it is not a snapshot


def find_snapshots(run: Path, follow_links: bool = True) -> SnapshotFiles:
    """The snapshots in a run folder. Without `follow_links`, links that point outside the run folder count as odd."""
    by_step: dict[int, Path] = {}
    odd: dict[Path, str] = {}
    for path in sorted((run / SNAPSHOTS).glob("*")):
        if path.name.endswith(UNFINISHED):
            continue  # being written
        reason = _why_no_snapshot(path, None if follow_links else run)
        match = _SNAPSHOT_NAME.fullmatch(path.name)
        if reason is None and match is not None and int(match[1]) in by_step:
            reason = f"{path.name} and {by_step[int(match[1])].name} are of the same step: remove one of them"
        if reason is not None or match is None:
            odd[path] = reason or f"{path.name} is not a snapshot: their names are step-NUMBER.safetensors"
        else:
            by_step[int(match[1])] = path
    return SnapshotFiles(dict(sorted(by_step.items())), odd)


def _why_no_snapshot(path: Path, inside: Path | None) -> str | None:
    """Why a file in the snapshots folder cannot be used, apart from its name; None if it can."""
    try:
        if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
            return f"{path.name} points outside of its run: copy the file there"
        return None if path.is_file() else f"{path.name} is not a file"
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself, before Python 3.13
        return f"cannot read {path.name}: {getattr(error, 'strerror', None) or 'a link that leads to itself'}"
