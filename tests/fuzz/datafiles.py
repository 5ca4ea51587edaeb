"""Data files of `countlens eval --data`: scored, or refused."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from models.checkpoint import load_counter
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import TEXTS, damage_bytes, mutate_tree, odd_value, put_odd_file, to_json
from tests.fuzz.sources import tiny_config, write_counter
from training.datafile import FileScores, evaluate_file
from training.policies import POLICIES
from training.tasks import Task, task_of_checkpoint

COUNTERS = {"ape": "mod10", "rope": "selective", "lstm": "helper", "sine": "first_tok_homogeneous", "mamba": "mod10"}


def prepare(folder: Path) -> None:
    for architecture, task in COUNTERS.items():
        write_counter(folder / f"{architecture}.safetensors", tiny_config(architecture, task))


def open_border(folder: Path) -> Case:
    counters = [load_counter(path) for path in sorted(folder.glob("*.safetensors"))]

    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        counter = chance.choice(counters)
        assert counter.info is not None
        task = task_of_checkpoint(counter.info)
        assert task is not None
        path = place / "rows.jsonl"
        path.write_bytes(make_file(task, chance))
        if chance.random() < 0.02:
            put_odd_file(path, chance)
        policy = chance.choice(list(POLICIES))
        check(evaluate_file(counter, task, policy, path), path)
        return "accepted"

    return case


def check(scores: FileScores, path: Path) -> None:
    """Every line was read, and every label that is not "-1" was scored or belongs to rows that are scored apart."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    labels = sum(label != "-1" for _, answers in rows for label in answers)
    if scores.lines != len(rows) or not 0 < scores.scored <= labels or not 0 <= scores.accuracy <= 100:
        raise DifferentError(f"{scores} of {len(rows)} rows with {labels} labels")


def make_file(task: Task, chance: random.Random) -> bytes:
    """Rows that the task itself drew, with changes."""
    generator = torch.Generator().manual_seed(chance.randrange(2**31))
    rows = [_row(task, generator) for _ in range(chance.choice((1, 2, 5)))]
    mutations: list[Callable[[], bytes]] = [
        lambda: b"\n".join(to_json(row, chance) for row in rows),
        lambda: b"\n".join(to_json(mutate_tree(row, chance), chance) for row in rows),
        lambda: _lines(rows, chance, odd_value(chance)),
        lambda: damage_bytes(_lines(rows, chance), chance),
        lambda: _lines(_swap_token(rows, task, chance), chance),
        lambda: _lines(rows * chance.choice((100, 1000)), chance),
        lambda: _lines([_repeat(rows[0], chance)], chance),
        lambda: _lines([*rows * chance.choice((1, 50)), _repeat(rows[0], chance)], chance),
        lambda: b"\xef\xbb\xbf" + _lines(rows, chance),
        lambda: _lines(rows, chance).replace(b"\n", chance.choice([b"\r\n", b"\n\n\n", b" ", b"\x0b", b"\r"])),
        lambda: json.dumps(rows).encode(),
        lambda: b"\n" * chance.choice((1, 200_000)),
    ]
    return chance.choices(mutations, [2, 6, 2, 5, 4, 1, 1, 1, 1, 2, 1, 1])[0]()


def _row(task: Task, generator: torch.Generator) -> list[list[str]]:
    """One row that the task draws, in the format of a data file."""
    rows = task.sample("ood", 1, generator)
    return [task.vocab.decode(ids[0].tolist()) for ids in (rows.token_ids, task.label(rows.token_ids))]


def _lines(rows: list[list[list[str]]], chance: random.Random, *more: object) -> bytes:
    lines = [to_json(row, chance) for row in (*rows, *more)]
    return b"\n".join(lines) + b"\n" * chance.randrange(2)


def _repeat(row: list[list[str]], chance: random.Random) -> list[list[str]]:
    """A row that is much longer than those of the task, perhaps longer than any may be."""
    times = chance.choice((2, 100, 2_000, 7_000, 100_000))
    return [part * times for part in row]


def _swap_token(rows: list[list[list[str]]], task: Task, chance: random.Random) -> list[list[list[str]]]:
    """Another token or label, mostly one of the vocabulary."""
    row = chance.choice(rows)
    part = chance.choice(row)
    part[chance.randrange(len(part))] = chance.choice([*task.vocab.tokens, *TEXTS])
    return rows
