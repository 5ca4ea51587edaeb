"""The house with what docs/extending.md adds to it: the files of tests/extending/house, and their registry entries.

As a pytest plugin (`pytest -p overlay`) it holds for a whole session: the suite then also runs on the additions.
"""

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

EXTENDING = Path(__file__).parents[1] / "extending"
HOUSE = EXTENDING / "house"
FILES = {path.relative_to(HOUSE).as_posix(): path for path in sorted(HOUSE.rglob("*.py"))}
PACKAGES = sorted({Path(name).parent.as_posix().replace("/", ".") for name in FILES})
REGISTRIES = {
    "app.explorer.registry": ("PAGES",),
    "app.figures.registry": ("FIGURES",),
    "definitions": ("DEFINITIONS",),
    "models.families": ("FAMILIES",),
    "models.schemes": ("SCHEMES",),
    "probes.registry": ("PROBES",),
    "training.recipes": ("SMALL_ARCHITECTURES",),
    "training.tasks": ("TASKS",),
}


def add() -> None:
    """Puts the files into their packages, the function into its module and the entries into their registries."""
    for name in PACKAGES:
        import_module(name).__path__.append(str(HOUSE / name.replace(".", "/")))
    alibi = runpy.run_path(str(EXTENDING / "alibi.py"))
    import_module("models.position_tables").alibi_bias = alibi["alibi_bias"]
    runpy.run_path(str(EXTENDING / "entries.py"))


@contextmanager
def extended() -> Iterator[None]:
    """Adds everything for the block and removes it afterwards."""
    registries: list[dict[Any, Any]] = [
        getattr(import_module(module), name) for module, names in REGISTRIES.items() for name in names
    ]
    before = [dict(registry) for registry in registries]
    add()
    try:
        yield
    finally:
        for registry, entries in zip(registries, before, strict=True):
            registry.clear()
            registry.update(entries)
        for name in FILES:
            package, _, module = name.removesuffix(".py").replace("/", ".").rpartition(".")
            sys.modules.pop(f"{package}.{module}", None)
            vars(import_module(package)).pop(module, None)
        for name in PACKAGES:
            import_module(name).__path__.remove(str(HOUSE / name.replace(".", "/")))
        del import_module("models.position_tables").alibi_bias


def pytest_configure() -> None:
    """As a plugin: for the whole session, once the conftest has switched shape checks on."""
    add()
