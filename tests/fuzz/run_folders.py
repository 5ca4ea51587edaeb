"""Damaged folders of stopped runs: a resumed run ends with the same files as an undisturbed one, or is refused.

A folder in which nothing but config.json is left is a new run, whatever its config.json says; damage to that file is
therefore tried where a state tells that it was another one.
"""

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from safetensors.torch import load_file

from models.errors import CountLensError
from tests.fuzz.checkpoints import mutate_checkpoint
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import damage_bytes, mutate_tree, put_odd_file, to_json
from tests.fuzz.sources import tiny_config
from training.config import RunConfig
from training.run.folder import RunFolder
from training.run.loop import train
from training.run.state import read_state, write_state

ARCHITECTURES = ("sine", "lstm")
CONFIG, METRICS, STATE = "config.json", "metrics.jsonl", "state.safetensors"
WAY_OUT = re.compile(r"\b(remove|restore|train|copy|move|choose|update|free)\b", re.IGNORECASE)


def prepare(folder: Path) -> None:
    """Trains each run once, and keeps copies of its folder after every saved state and while it finishes."""
    for name in ARCHITECTURES:
        config = tiny_config(name, "helper", snapshots=2)
        config = replace(config, model=replace(config.model, dropout=0.1, n_layers=2)) if name == "lstm" else config
        keep_stops(folder / name, config)


def keep_stops(folder: Path, config: RunConfig) -> None:
    run = RunFolder.create(folder / "run", config)
    stops = iter(range(1000))

    def keeping(function: Callable[..., Any], before: bool) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            result = None if before else function(*args, **more)
            shutil.copytree(run.path, folder / f"stop{next(stops)}")
            return function(*args, **more) if before else result

        return call

    shutil.copytree(run.path, folder / "new")
    finish, save_state = RunFolder.finish, RunFolder.save_state
    with (
        patch.object(RunFolder, "finish", keeping(finish, before=True)),
        patch.object(RunFolder, "save_state", keeping(save_state, before=False)),
    ):
        train(run, progress=False)
    run.path.rename(folder / "whole")


def open_border(folder: Path) -> Case:
    sources = {
        name: sorted(path for path in (folder / name).iterdir() if path.name != "whole") for name in ARCHITECTURES
    }
    results = {name: contents(folder / name / "whole") for name in ARCHITECTURES}

    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        name = chance.choice(ARCHITECTURES)
        source = chance.choice(sources[name])
        path = place / "run"
        shutil.copytree(source, path)
        log = damage_folder(path, chance, chance.choice(sources[chance.choice(ARCHITECTURES)]))
        (place / "damage.txt").write_text(f"{source.name} of {name}: {'; '.join(log)}\n")
        try:
            train(RunFolder.open(path), progress=False)
        except CountLensError as error:
            if not WAY_OUT.search(str(error)):
                raise DifferentError(f"refused without a way out: {error}") from error
            raise
        compare(contents(path), results[name])
        return "accepted"

    return case


def contents(run: Path) -> dict[str, bytes]:
    """The contents of the files that a run produces; metrics.jsonl without the seconds, which differ each time."""
    files = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted(run.rglob("*.safetensors"))
        if path.is_file()
    }
    metrics = re.sub(rb'"seconds": [0-9.e+-]+', b"", (run / METRICS).read_bytes())
    config = RunFolder(run).config()  # the same settings can be written in several ways
    return files | {METRICS: metrics, CONFIG: repr(config).encode()}


def compare(result: dict[str, bytes], whole: dict[str, bytes]) -> None:
    different = sorted(name for name in result.keys() | whole.keys() if result.get(name) != whole.get(name))
    if different:
        raise DifferentError(f"the resumed run ended with other files: {', '.join(different)}")


def damage_folder(run: Path, chance: random.Random, other: Path) -> list[str]:
    """Damages some files of a run; `other` is another stop, perhaps of another run. Returns what was done."""
    files = [
        path for path in sorted(run.rglob("*")) if path.is_file() and (path.name != CONFIG or (run / STATE).is_file())
    ]
    times = chance.choice((1, 1, 1, 2, 3)) if not (run / "last.safetensors").exists() else 1
    log = []
    for path in chance.sample(files, min(times, len(files))):
        name = path.relative_to(run)
        if name.name == CONFIG:  # alone: without a state, another config is another run
            return log or [f"{name} {damage_json(path, chance)}"]
        log.append(f"{name} {damage_file(path, chance, other / name)}")
    if chance.random() < 0.1 or not log:
        log.append(f"additional {add_file(run, chance)}")
    return log


def damage_file(path: Path, chance: random.Random, other: Path) -> str:
    """Damages one file; returns how."""
    content = path.read_bytes()
    kind = chance.choices(["bytes", "structure", "exchanged", "odd"], [5, 3, 2, 2])[0]
    if kind == "exchanged" and other.is_file():
        shutil.copyfile(other, path)
        return f"is that of {other}"
    if kind == "odd":
        return f"is {put_odd_file(path, chance)}"
    if kind == "structure" and path.name == METRICS:
        return damage_lines(path, chance)
    if kind == "structure" and path.name.startswith("state."):
        return forge_state(path, chance)
    if kind == "structure" and content:
        path.write_bytes(mutate_checkpoint(content, chance, content))
        return "has another header or weights"
    path.write_bytes(damage_bytes(content, chance, other.read_bytes() if other.is_file() else b""))
    return "has other bytes"


def damage_json(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    damaged = (
        damage_bytes(content, chance)
        if chance.random() < 0.3
        else to_json(mutate_tree(json.loads(content), chance), chance)
    )
    path.write_bytes(damaged)
    return "has other values or bytes"


def damage_lines(path: Path, chance: random.Random) -> str:
    """A line of metrics.jsonl that is changed, missing, doubled or moved."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines:
        return "stays empty"
    number = chance.randrange(len(lines))
    line = lines[number]
    changed = to_json(mutate_tree(json.loads(line), chance), chance) + b"\n"
    lines[number : number + 1] = chance.choice([[changed], [], [line, line], [b"\n", line], [line.rstrip()], [b"{}\n"]])
    chance.shuffle(lines) if chance.random() < 0.2 else None
    path.write_bytes(b"".join(lines))
    return f"has another line {number + 1}"


def forge_state(path: Path, chance: random.Random) -> str:
    """A state with a sound checksum whose tensors are not those of the run."""
    config = RunFolder(path.parent).config()
    state = read_state(path, config)
    tensors = dict(load_file(path))
    name = chance.choice(sorted(tensors))
    tensor = tensors.pop(name)
    forged = chance.choice(
        [
            {},
            {name: tensor.double() if tensor.is_floating_point() else tensor.float()},
            {name: tensor[None]},
            {name: tensor.flatten()[: tensor.numel() // 2].clone()},
            {name: tensor, f"{name}.x": tensor.clone()},
            {f"{name}x": tensor},
        ]
    )
    write_state(path, replace(state, tensors=tensors | forged), config)
    return f"has another tensor {name}"


def add_file(run: Path, chance: random.Random) -> str:
    """Puts a file into the folder that does not belong there."""
    name = chance.choice(
        ["notes.txt", "config.json.0123456789abcdef.unfinished", "snapshots/step-x.unfinished", "error.txt", ".lock"]
    )
    path = run / name
    path.parent.mkdir(exist_ok=True)
    if chance.random() < 0.5:
        return f"{name}: {put_odd_file(path, chance)}"
    path.write_bytes(chance.randbytes(50))
    return name
