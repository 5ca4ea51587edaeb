"""Rows to look at, of any length that a task has."""

import pytest
import torch

from models.config import TransformerConfig
from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.header import CheckpointInfo
from probes.reading.answers import example_row, predict_tokens
from training.tasks import TASKS, Task, make_task, task_settings


def counter_of(task: Task) -> Counter:
    config = TransformerConfig(
        d_vocab=task.vocab.size, n_layers=1, d_model=8, n_heads=1, position="ape", max_position=160
    )
    counter = build_counter(config, torch.Generator().manual_seed(0))
    counter.info = CheckpointInfo("transformer", {}, task_settings(task), "shifted")
    return counter.eval()


@pytest.mark.parametrize("name", TASKS)
def test_a_row_of_every_task_has_the_length_that_was_asked_for(name: str) -> None:
    task = make_task(name, bos=True) if TASKS[name].takes_bos else make_task(name)
    counter = counter_of(task)
    for length in (2, task.train_length, task.ood_lengths[1]):
        row = example_row(counter, length, seed=3).split()
        assert len(row) == task.prefix + length
        assert "-1" not in task.label_tokens(row)[task.prefix :]
        assert predict_tokens(counter, row).tokens == tuple(row)


def test_seeds_give_different_rows_where_rows_differ() -> None:
    counter = counter_of(make_task("selective"))
    assert example_row(counter, 20, seed=0) == example_row(counter, 20, seed=0) != example_row(counter, 20, seed=1)


@pytest.mark.parametrize("length", [1, 101])
def test_a_length_that_the_task_does_not_have_is_refused(length: int) -> None:
    with pytest.raises(CountLensError, match=r"outside 2\.\.100"):
        example_row(counter_of(make_task("mod10")), length)
