"""Grid files of `countlens sweep`: expanded to runs that can be built, or refused."""

import random
from pathlib import Path
from typing import Any, Literal

import torch

from models.border import field_hints
from models.families import build_counter
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import damage_bytes, mutate_tree, odd_value, plain_types, put_odd_file, to_toml
from training.config import MAX_RUNS, TrainConfig
from training.presets import model_config, resolve
from training.sweep.grid import KEYS, OPTIONS, SweepRun, read_grid
from training.sweep.manifest import Manifest

# Values of which most are allowed, for the keys that are no plain numbers.
PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "preset": ("small", "paper", "smal"),
    "seeds": (1, 3, [0, 7], [5], 0, []),
    "seed": (0, 5, [0, 7], []),
    "family": ("transformer", ["lstm", "s4"], "gru"),
    "position": ("ape", ["nope", "sine"], "rop"),
    "architecture": ("ape", ["nope", "sine", "rope"], "lstm", ["s4", "mamba", "rwkv6", "rnn"], "gru"),
    "lengths": ([4, 8], [[4, 8], [8, 16]], [8, 4], [50, 100], [4]),
    "periods": ([10, 20], [[10], [10.5, 21]], [0.5], [4], 10),
    "task": ("mod10", ["mod7", "selective"], "helper", "first_tok_homogeneous", "selective_mod4", "mod1", "mod9999"),
    "policy": ("contiguous", "shifted", "randomised", ["shifted", "contiguous"]),
    "schedule": ("cosine", "constant"),
    "algorithm": ("adamw", ["adamw", "soap"], "sgd"),
    "device": ("cpu", "auto"),
    "precision": ("fp32", "bf16", "fp16"),
}
BY_TYPE: dict[Any, tuple[Any, ...]] = {
    int: (1, 2, 4, 8, 16, 64, 100, 256, [1, 2], [4, 8, 16], 0),
    float: (0.1, 0.5, 1e-3, 1, [0.1, 0.2], 2.0),
    bool: (True, False, [True, False]),
}
MOST_BUILT = 3  # runs of a grid whose counters are built, without memory for their weights


def prepare(folder: Path) -> None:
    """A grid starts from nothing."""


def open_border(folder: Path) -> Case:
    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        path = place / "grid.toml"
        path.write_bytes(make_grid(chance))
        if chance.random() < 0.01:
            put_odd_file(path, chance)
        return examine(path, chance)

    return case


def examine(path: Path, chance: random.Random) -> Literal["accepted"]:
    """The runs have different names, their configs are complete, and their counters can be built."""
    runs = read_grid(path)
    if not 0 < len(runs) <= MAX_RUNS or len({run.name for run in runs}) != len(runs):
        raise DifferentError(f"{len(runs)} runs, {len({run.name for run in runs})} names")
    chosen = chance.sample(runs, min(MOST_BUILT, len(runs)))
    manifest = Manifest(path.with_suffix(".jsonl"), tuple(chosen))
    manifest.write()
    if Manifest.read(manifest.path) != manifest:
        raise DifferentError("the manifest reads back as another one")
    for run in chosen:
        build(run)
    return "accepted"


def build(run: SweepRun) -> None:
    if resolve(run.config) != run.config:
        raise DifferentError(f"{run.name} is not complete")
    cfg = model_config(run.config)
    if cfg.n_layers <= 16:  # every layer is like the others
        with torch.device("meta"):
            build_counter(cfg)


def make_grid(chance: random.Random) -> bytes:
    """A grid file of some cells, of which most values are plausible and some are not."""
    defaults = _cell(chance, chance.choice((0, 1, 2)))
    cells = [_cell(chance, chance.choice((1, 2, 4, 8))) for _ in range(chance.choice((1, 1, 2, 5)))]
    if chance.random() < 0.3:
        grid = mutate_tree({"defaults": defaults, "cells": cells}, chance)
        defaults, cells = grid.get("defaults", {}), grid.get("cells", 1)
    text = _write(defaults, cells, chance).encode(errors="surrogatepass")
    return damage_bytes(text, chance) if chance.random() < 0.15 else text


def _cell(chance: random.Random, keys: int) -> dict[str, Any]:
    return {key: _value(key, chance) for key in chance.sample(KEYS, keys)} | (
        {"task": "mod10"} if chance.random() < 0.5 else {}
    )


def _value(key: str, chance: random.Random) -> Any:
    if chance.random() < 0.08:
        return odd_value(chance)
    if key in PLAUSIBLE:
        return chance.choice(PLAUSIBLE[key])
    kind = next(part for part in plain_types(field_hints(field_hints(TrainConfig)[OPTIONS[key]])[key]))
    return chance.choice(BY_TYPE[kind])


def _write(defaults: Any, cells: Any, chance: random.Random) -> str:
    """The text of a grid; sometimes with a table given twice, a very long dotted key, or many axes."""
    parts = [_lines(defaults)]
    parts += (
        [f"[[cells]]\n{_lines(cell)}" for cell in cells] if isinstance(cells, list) else [f"cells = {to_toml(cells)}"]
    )
    extra = chance.randrange(60)
    if extra == 0:
        parts.append("[cells]\n")
    elif extra == 1:
        parts.append(".".join("a" * chance.choice((10, 900, 20_000))) + " = 1\n")
    elif extra == 2:
        parts.append("".join(f"{key} = [1, 2, 3, 4, 5, 6, 7, 8]\n" for key in KEYS if key not in PLAUSIBLE))
    elif extra == 3:
        parts.append(f"[[cells]]\nlr = {list(range(chance.choice((10, 4000, 30_000))))}\n")
    return "\n".join(parts)


def _lines(cell: Any) -> str:
    if not isinstance(cell, dict):
        return f"{to_toml(cell)}\n"
    return "".join(
        f"{key if key.isidentifier() and key.isascii() else to_toml(key)} = {to_toml(value)}\n"
        for key, value in cell.items()
    )
