"""Hostile values, texts, bytes and files. Whatever is chosen is chosen with the generator that is passed in."""

import json
import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 255, 10**4, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, -(10**9), 10**400),
    *(0.5, -0.0, 1e-300, 1.5, 1e308, math.nan, math.inf, -math.inf),
)
TEXTS = (
    *("", " ", "x", "0", "-1", "nan", "None", "true", "{}", "[]", "a\x00b", "\x1b[2J\x1b]0;t\x07", "line\nbreak\r"),
    *("\u202eabc", "💥", "e\u0301" * 50, "\ud800", "\\", '"', "'", "`", "%s%n{}{0}", "../../x", "/dev/zero", "~", "."),
    *("<img src=//evil.example/x>", "![x](//evil.example/x)", "a" * 10_000, "9" * 5_000, "mod" + "9" * 30, "\ufeff"),
)
DEPTHS = (10, 200, 2_000, 100_000)
_DEEP = "deep nesting of {} levels"  # stands for it until the tree is text: Python itself cannot write it


def odd_value(chance: random.Random) -> Any:
    """A value of some JSON type that a reader hardly expects."""
    kind = chance.randrange(8)
    if kind < 3:
        return chance.choice(NUMBERS)
    if kind < 5:
        return chance.choice(TEXTS)
    if kind == 5:
        return chance.choice([None, True, False, [], {}])
    if kind == 6:
        return [odd_value(chance) for _ in range(chance.randint(1, 3))]
    return chance.choice([{"name": odd_value(chance)}, _DEEP.format(chance.choice(DEPTHS)), [1] * 3000])


def mutate_tree(tree: Any, chance: random.Random, changes: int | None = None) -> Any:
    """A tree of JSON values with one or a few places changed: other values, missing, additional or renamed keys."""
    tree = json.loads(json.dumps(tree))
    for _ in range(changes or chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return odd_value(chance)
        holder, key = chance.choice(places)
        action = chance.randrange(6)
        if action < 3:
            holder[key] = _near(holder[key], chance) if chance.random() < 0.5 else odd_value(chance)
        elif action == 3:
            del holder[key]
        elif action == 4:
            other, other_key = chance.choice(places)
            holder[key] = json.loads(json.dumps(other[other_key]))
        elif isinstance(holder, dict):
            name = chance.choice([*TEXTS, "step", "name", "x"])
            holder[name] = holder.pop(key) if chance.random() < 0.5 else odd_value(chance)
        else:
            value, times = odd_value(chance), chance.choice((1, 5, 1000))
            # A long list many times over would take the mutation itself too long.
            holder.extend([value] * (1 if isinstance(value, list | dict) else times))
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _near(value: Any, chance: random.Random) -> Any:
    """A value like this one, but of another size or type."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return chance.choice([value + 1, value - 1, -value, value * 1000, value // 2, str(value), [value]])
    if isinstance(value, str):
        return chance.choice([value.upper(), value + "x", value[:-1], value * 2, [value], 7, f" {value}"])
    return chance.choice([None, [value], str(value), 0])


def to_json(tree: Any, chance: random.Random) -> bytes:
    """The tree as JSON text, with NaN, infinities and deep nesting where it has them; sometimes with a double key."""
    text = json.dumps(tree)
    for depth in DEPTHS:
        text = text.replace(f'"{_DEEP.format(depth)}"', "[" * depth + "]" * depth)
    if isinstance(tree, dict) and tree and chance.random() < 0.05:
        double = f"{json.dumps(chance.choice(list(tree)))}: {json.dumps(odd_value(chance))}"
        text = f"{{{double}, {text[1:]}" if chance.random() < 0.5 else f"{text[:-1]}, {double}}}"
    return text.encode()


def to_toml(value: Any) -> str:
    """A value as TOML text; None is written as it is, although TOML does not know it."""
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {to_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        nested = {_DEEP.format(depth): "[" * depth + "]" * depth for depth in DEPTHS}
        return nested.get(value) or json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool | float) else str(value)  # true, nan, inf, 1e+30


def damage_bytes(content: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """The bytes with a few flipped, cut off, cut out, doubled, overwritten, or mixed with those of another file."""
    if not content:
        return bytes(chance.randbytes(20))
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice((1, 8, 100, 5000)))
    actions: list[Callable[[], bytes]] = [
        lambda: _flip(content, chance),
        lambda: content[:start],
        lambda: content[:start] + content[end:],
        lambda: content[:end] + content[start:],
        lambda: content[:start] + bytes(end - start) + content[end:],
        lambda: content[:start] + chance.randbytes(end - start) + content[end:],
        lambda: content[:start] + (other or content)[start:],
        lambda: content + chance.randbytes(chance.choice((1, 100))),
    ]
    # Flipped bits are the most telling: every other damage is easier to notice.
    return chance.choices(actions, [8, *[1] * (len(actions) - 1)])[0]()


def _flip(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def put_odd_file(path: Path, chance: random.Random) -> str:
    """Puts something other than an ordinary file at a path, or nothing; returns what it is."""
    path.unlink(missing_ok=True)
    kinds: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "an empty file": path.touch,
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a link to /dev/zero": lambda: path.symlink_to("/dev/zero"),
        "a link to /dev/null": lambda: path.symlink_to("/dev/null"),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link to nothing": lambda: path.symlink_to("nowhere"),
        "64 GB of holes": lambda: _make_holes(path),
    }
    kind = chance.choice(list(kinds))
    kinds[kind]()
    return kind


def _make_holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(64 * 2**30)


def plain_types(hint: Any) -> Iterator[Any]:
    """The types and the allowed words that a hint consists of."""
    parts = get_args(hint)
    if not parts:
        yield hint
    for part in parts:
        yield from plain_types(part)
