"""The one registry of tasks: `make_task("mod10", bos=True)`. Names give the base: `mod7`, `selective_mod3`."""

import re
from dataclasses import fields
from typing import Any

from models.border import IN_PYTHON, build
from models.errors import CountLensError, unknown
from models.header import CheckpointInfo
from training.tasks.base import MAIN_SPLITS, Rows, Split, Task, check_sound
from training.tasks.first_token import FirstTokenHeterogeneous, FirstTokenHomogeneous
from training.tasks.modular import Modular
from training.tasks.selective import Selective, SelectiveModular
from training.tasks.shifted_start import HelperShiftedStart, HelperToken, ShiftedStart
from training.tasks.vanilla import VanillaSuccession
from training.tasks.vocabulary import BOS, NOT_SCORED, PAD, Vocabulary

TASKS: dict[str, type[Task]] = {
    "vanilla_succession": VanillaSuccession,
    "helper": HelperToken,
    "helper_shifted": HelperShiftedStart,
    "shifted_start": ShiftedStart,
    "mod10": Modular,
    "selective": Selective,
    "selective_mod4": SelectiveModular,
    "first_tok_homogeneous": FirstTokenHomogeneous,
    "first_tok_heterogeneous": FirstTokenHeterogeneous,
}

__all__ = [
    "BOS",
    "MAIN_SPLITS",
    "NOT_SCORED",
    "PAD",
    "TASKS",
    "Rows",
    "Selective",
    "Split",
    "Task",
    "Vocabulary",
    "check_sound",
    "make_task",
    "split_base",
    "task_of_checkpoint",
    "task_settings",
]


def make_task(name: str, **settings: Any) -> Task:
    """The task of this name. Settings are fields of its class; None means the paper's value.

    >>> make_task("mod7").label_tokens(["a"] * 8)[-2:]
    ['7', '1']
    """
    settings = {key: value for key, value in settings.items() if value is not None}
    stem, base = split_base(name)
    if name in TASKS:
        cls = TASKS[name]
    elif base is not None:
        cls = next(task for task in TASKS.values() if task.stem == stem)
        settings["base"] = base
    else:
        raise unknown("task", name, TASKS)
    return build(cls, settings, name, IN_PYTHON)


def split_base(name: str) -> tuple[str, int | None]:
    """The name of a task without its base, and the base; None if the task has no base.

    >>> split_base("mod7"), split_base("helper")
    (('mod', 7), ('helper', None))
    """
    parts = re.fullmatch(r"(.*?)([0-9]{1,20})", name)
    stems = {task.stem for task in TASKS.values() if task.stem}
    return (parts[1], int(parts[2])) if parts and parts[1] in stems else (name, None)


def task_of_checkpoint(info: CheckpointInfo) -> Task | None:
    """The task that a checkpoint was trained on; None if its metadata have no task."""
    if info.task is None:
        return None
    task = make_task(**info.task)
    d_vocab = info.model.get("d_vocab", task.vocab.size)  # missing in the info of a counter that was never saved
    if task.vocab.size != d_vocab:
        raise CountLensError(
            f"the checkpoint's task {task.name} has {task.vocab.size} tokens, but its model has "
            f"d_vocab={d_vocab}: they do not belong together"
        )
    return task


def task_settings(task: Task) -> dict[str, Any]:
    """The settings from which `make_task(**task_settings(task))` makes the same task."""
    settings = {field.name: getattr(task, field.name) for field in fields(task)}
    settings.pop("base", None)  # it is part of the name
    return {"name": task.name, **settings}
