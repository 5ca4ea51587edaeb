"""Writes the drawings of docs/architecture.md anew: `python docs/architecture.py`. A test compares them with the code.

The graph has an arrow from each package to those that it imports. The walks list the files whose functions run on the
way of one row to its point in a picture, and of one checkpoint to its patching map, in the order in which they come.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = ("models", "training", "probes", "app")


def graph() -> str:
    """The import graph of the packages, in Mermaid's language."""
    imports = grimp.build_graph(*ROOMS)
    packages = [name for name in sorted(imports.modules) if (ROOT / name.replace(".", "/")).is_dir()]
    arrows = set()
    for module in imports.modules:
        for imported in imports.find_modules_directly_imported_by(module):
            arrow = _package(module, packages), _package(imported, packages)
            if arrow[0] != arrow[1] and not arrow[1].startswith(f"{arrow[0]}."):
                arrows.add(arrow)
    lines = ["graph LR"]
    for room in ROOMS:
        lines += [
            f"  subgraph {room}",
            *(f"    {_id(name)}[{name}]" for name in packages if _room(name) == room),
            "  end",
        ]
    lines += [f"  {_id(start)} --> {_id(end)}" for start, end in sorted(arrows)]
    return "\n".join(["```mermaid", *lines, "```"])


def _package(module: str, packages: list[str]) -> str:
    return max((name for name in packages if f"{module}.".startswith(f"{name}.")), key=len)


def _id(package: str) -> str:
    return package.replace(".", "_")


def _room(package: str) -> str:
    return package.partition(".")[0]


def files_of(walk: Callable[[], object]) -> list[str]:
    """The project's files whose functions run, in the order of their first call."""
    seen: dict[str, None] = {}

    def notice(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.setdefault(frame.f_code.co_filename)

    walk()  # imports what it needs: bodies of classes are no part of the walk
    sys.setprofile(notice)
    try:
        walk()
    finally:
        sys.setprofile(None)
    paths = [Path(name) for name in seen if name.startswith(tuple(str(ROOT / room) for room in ROOMS))]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def row_to_point() -> object:
    """A row of modular counting, through a shipped counter, to its points in a picture."""
    from app.figures.mod_pca import pca_grid_figure
    from models import load_counter
    from probes.reading.mod_pca import mod_pca

    return pca_grid_figure(mod_pca(load_counter("mod10/ape-2L")))


def checkpoint_to_map() -> object:
    """A short training run, its checkpoint, and the patching map of it."""
    from app.figures.patching import patching_figure
    from models import load_counter
    from probes.patching.pairs import pair_patch
    from training import RunFolder, TrainConfig, resolve, train
    from training.config import OptimiserOptions

    config = resolve(replace(TrainConfig(), optimiser=OptimiserOptions(steps=2)))
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", config)
        train(run, progress=False)
        found = pair_patch(load_counter(run.best))
    return patching_figure(found, next(iter(found.grids)))


def walk_text(walk: Callable[[], object]) -> str:
    """The files of a walk as a list."""
    files = files_of(walk)
    return "\n".join([f"{len(files)} files:", "", *(f"{index}. `{name}`" for index, name in enumerate(files, 1))])


DRAWINGS: dict[str, Callable[[], str]] = {
    "imports": graph,
    "row": lambda: walk_text(row_to_point),
    "checkpoint": lambda: walk_text(checkpoint_to_map),
}


def with_drawing(text: str, name: str, drawing: str) -> str:
    """The page with one drawing put between its two marks."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return f"{before}{start}\n{drawing}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """Writes every drawing into the page."""
    text = PAGE.read_text()
    for name, draw in DRAWINGS.items():
        text = with_drawing(text, name, draw())
    PAGE.write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
