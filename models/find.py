"""Where counters are: the shipped ones in `checkpoints/`, own ones in `./runs`, or anywhere by path."""

import re
from collections.abc import Iterator
from pathlib import Path

from models.errors import CountLensError, unknown

CHECKPOINT = "model.safetensors"  # a folder with this file is a counter
SHIPPED = Path(__file__).resolve().parent.parent / "checkpoints"
RUNS = Path("runs")


def named_counters(folders: tuple[Path, ...] = (SHIPPED, RUNS)) -> Iterator[tuple[str, Path]]:
    """(name, file) of every counter below these folders; the name is its folder's path there."""
    for folder in folders:
        for path in sorted(folder.rglob(CHECKPOINT)):
            yield path.parent.relative_to(folder).as_posix(), path


def snapshots_beside(checkpoint: Path) -> dict[int, Path]:
    """The checkpoints that a run kept over training, by step; files of other names are left aside."""
    files = sorted((checkpoint.parent / "snapshots").glob("step-*.safetensors"))
    return {int(step[1]): path for path in files if (step := re.fullmatch(r"step-([0-9]{1,10})", path.stem))}


def find_checkpoint(name_or_path: str | Path) -> Path:
    """The checkpoint file that is meant by a file's path, a run folder's path, or a counter's name.

    A name may leave out the seed where there is only one, as among the shipped counters: `mod10/ape-2L`.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if (path / CHECKPOINT).is_file():
        return path / CHECKPOINT
    for folder in (SHIPPED, RUNS):
        if (folder / path / CHECKPOINT).is_file():
            return folder / path / CHECKPOINT
    for folder in (SHIPPED, RUNS):
        seeds = sorted((folder / path).glob(f"*/{CHECKPOINT}"))
        if len(seeds) == 1:
            return seeds[0]
        if seeds:
            names = ", ".join(seed.parent.relative_to(folder).as_posix() for seed in seeds)
            raise CountLensError(f"{name_or_path} is not one counter but several: name one of {names}")
    if path.is_dir():
        raise CountLensError(f"{path} holds no {CHECKPOINT}: name a run folder or a .safetensors file")
    raise unknown("checkpoint", str(name_or_path), [name for name, _ in named_counters()])
