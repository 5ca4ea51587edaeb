"""Checkpoint files: listed, shown in the zoo, loaded and run, or refused."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from app.commands.listing import print_counters
from app.explorer.catalogue import read_catalogue
from app.explorer.zoo import zoo_grid
from models.checkpoint import load_counter
from models.errors import CountLensError
from models.find import CHECKPOINT
from models.header import METADATA_KEY, read_info
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import NUMBERS, damage_bytes, mutate_tree, odd_value, put_odd_file, to_json
from tests.fuzz.sources import ARCHITECTURES, tiny_config, write_counter
from training.tasks import task_of_checkpoint

DTYPES = ("F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "f32", "")
ODD_FLOATS = (float("nan"), float("inf"), float("-inf"), 1e38, -1e-40)


def prepare(folder: Path) -> None:
    for name in ARCHITECTURES:
        write_counter(folder / f"{name}.safetensors", tiny_config(name))


def open_border(folder: Path) -> Case:
    sources = [path.read_bytes() for path in sorted(folder.glob("*.safetensors"))]

    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        path = place / "counter" / CHECKPOINT
        path.parent.mkdir()
        path.write_bytes(mutate_checkpoint(chance.choice(sources), chance, chance.choice(sources)))
        if chance.random() < 0.01:
            put_odd_file(path, chance)
        return examine(path)

    return case


def examine(path: Path) -> Literal["accepted"]:
    """Lists, shows, loads and runs a checkpoint. One that cannot be listed must not load."""
    folders = (path.parent.parent,)
    for as_json in (False, True):
        print_counters(folders, as_json)
    zoo_grid(read_catalogue(folders).sound)
    try:
        info = read_info(path)
    except CountLensError:
        refused_too(path)
        raise
    counter = load_counter(path)
    length = min(6, counter.cfg.max_position)
    token_ids = torch.arange(length)[None] % counter.cfg.d_vocab
    logits = counter(token_ids, torch.arange(length)[None])
    if logits.shape != (1, length, counter.cfg.d_vocab):
        raise DifferentError(f"logits of the shape {tuple(logits.shape)}")
    task_of_checkpoint(info)
    return "accepted"


def refused_too(path: Path) -> None:
    try:
        load_counter(path)
    except CountLensError:
        return
    raise DifferentError("its metadata are refused, but it loads")


def mutate_checkpoint(content: bytes, chance: random.Random, other: bytes) -> bytes:
    """The file with its metadata, its header, its tensors or just some bytes changed."""
    (length,) = struct.unpack("<Q", content[:8])
    header, tensors = json.loads(content[8 : 8 + length]), content[8 + length :]
    mutations: list[Callable[[], bytes]] = [
        lambda: _join(_mutate_info(header, chance), tensors),
        lambda: _join(to_json(_mutate_tensors(header, chance), chance), tensors),
        lambda: _join(to_json(mutate_tree(header, chance), chance), tensors),
        lambda: _join(json.dumps(header).encode(), _mutate_weights(tensors, chance)),
        lambda: _lie_about_length(content, length, chance),
        lambda: damage_bytes(content, chance, other),
        lambda: content[: 8 + length] + other[8 + length :],
        lambda: damage_bytes(content[: 8 + length], chance) + tensors,
    ]
    return chance.choices(mutations, [10, 4, 3, 2, 1, 4, 1, 2])[0]()


def _join(header: bytes, tensors: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + tensors


def _mutate_info(header: dict[str, Any], chance: random.Random) -> bytes:
    """Changes the JSON string in the metadata, mostly the model's settings: they decide what is built."""
    info = json.loads(header["__metadata__"][METADATA_KEY])
    part = chance.choice(("model", "model", "task", "scores", "training", None))
    if part is None:
        info = mutate_tree(info, chance)
    elif chance.random() < 0.5 or not info[part]:
        info[part] = mutate_tree(info[part], chance)
    else:
        key = chance.choice(list(info[part]))
        info[part][key] = chance.choice([*NUMBERS, *range(1, 20), 2**14, 2**16, 256])
    text = to_json(info, chance).decode()
    if chance.random() < 0.1:
        text = damage_bytes(text.encode(), chance).decode(errors="replace")
    return json.dumps(header | {"__metadata__": {METADATA_KEY: text}}).encode()


def _mutate_tensors(header: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Changes the dtype, shape, place or name of a tensor, or adds or removes one."""
    name = chance.choice([name for name in header if name != "__metadata__"])
    entry = dict(header[name])
    begin, end = entry["data_offsets"]
    action = chance.randrange(6)
    if action == 0:
        entry["dtype"] = chance.choice(DTYPES)
    elif action == 1:
        entry["shape"] = chance.choice([entry["shape"][::-1], [*entry["shape"], 1], [2**31, 2**33], [-1], [], [0]])
    elif action == 2:
        entry["data_offsets"] = chance.choice([[begin, end + 4], [begin - 4, end], [end, begin], [0, 2**63], [0, 0]])
    elif action == 3:
        entry = mutate_tree(entry, chance)
    elif action == 4:
        return {key: value for key, value in header.items() if key != name}
    else:
        return header | {str(odd_value(chance))[:500]: entry}
    return header | {name: entry}


def _mutate_weights(tensors: bytes, chance: random.Random) -> bytes:
    """Puts numbers among the weights that are not finite, or hardly."""
    damaged = bytearray(tensors)
    for _ in range(chance.choice((1, 1, 100))):
        struct.pack_into("<f", damaged, chance.randrange(len(damaged) // 4) * 4, chance.choice(ODD_FLOATS))
    return bytes(damaged)


def _lie_about_length(content: bytes, length: int, chance: random.Random) -> bytes:
    claimed = chance.choice([0, 1, length - 1, length + 1, length * 2, len(content), 2**23, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", claimed) + content[8:]
