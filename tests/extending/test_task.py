"""A task is its file and one entry: parity is sampled, learned, scored and shown like the others."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from definitions import expected_labels
from pair_values import pair_values

from models.families import FAMILIES
from probes.inputs.counterfactuals import PAIRS
from training.tasks import NOT_SCORED, make_task, task_settings


@pytest.mark.parametrize("bos", [False, True])
def test_sampler_and_labeller_agree_with_the_definition(bos: bool, generator: torch.Generator) -> None:
    task = make_task("parity", bos=bos)
    assert make_task(**json.loads(json.dumps(task_settings(task)))) == task
    for split, (low, high) in {"train": (50, 50), "ind": (50, 50), "ood": (51, 100)}.items():
        rows = task.sample(split, 400, generator)
        labels = task.label(rows.token_ids)
        assert set(rows.lengths.tolist()) <= set(range(low + bos, high + bos + 1))
        for token_ids, label_ids, length in zip(rows.token_ids, labels, rows.lengths.tolist(), strict=True):
            tokens = task.vocab.decode(token_ids[:length].tolist())
            assert task.vocab.decode(label_ids[:length].tolist()) == expected_labels(task, tokens)
        ones, zeros = (int((rows.token_ids == bit).sum()) for bit in (1, 0))
        assert ones / (ones + zeros) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("name", ["shift", "one_more", "bos_replaced"])
def test_pairs_change_the_labels_that_they_say(name: str) -> None:
    pair = PAIRS[name](replace(make_task("parity"), bos=name == "bos_replaced"), 128, 40, 0)
    clean, corrupted = pair_values(pair, "labels")
    both = (clean != NOT_SCORED) & (corrupted != NOT_SCORED)
    assert bool(((clean != corrupted) & both).any(1).all()) == ("labels" in pair.changes)


def test_it_is_listed_with_an_example(countlens: Callable[..., str]) -> None:
    (entry,) = [task for task in json.loads(countlens("tasks", "--json")) if task["name"] == "parity"]
    ((tokens, labels),) = entry["examples"]
    assert labels == expected_labels(make_task("parity"), tokens)


def test_it_is_learned_and_scored(runs: Path, countlens: Callable[..., str]) -> None:
    scores = json.loads(countlens("eval", runs / "parity/gru", "--json"))
    assert scores["ind"] > 99
    assert scores["ood"] > 95
    assert "parity" not in countlens("tables", "--runs", runs)


def test_its_answers_are_drawn_in_the_familys_colour(
    runs: Path, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    drawn = figures(open_page(runs, "behaviour", counter="parity/gru"))
    assert len(drawn) >= 2
    assert FAMILIES["gru"].colour in json.dumps(drawn)
