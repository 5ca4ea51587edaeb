"""`countlens tasks`"""

import json
from typing import Any

import torch

from training.tasks import TASKS, Task, make_task


def print_tasks(as_json: bool) -> None:
    """Prints every task with an example of its own sampler and labeller."""
    described = [describe_task(make_task(name)) for name in TASKS]
    if as_json:
        print(json.dumps(described, indent=2))
        return
    for task in described:
        print(f"{task['name']}{'  [--bos]' if task['takes_bos'] else ''}")
        print(f"    {task['summary']}")
        print(f"    train on {task['train_length']} tokens, extrapolate to {task['ood_length']}")
        for tokens, labels in task["examples"]:
            shown = [max(len(a), len(b)) for a, b in zip(tokens, labels, strict=True)]
            print("      " + " ".join(f"{token:>{w}}" for token, w in zip(tokens, shown, strict=True)) + " ...")
            print("   -> " + " ".join(f"{label:>{w}}" for label, w in zip(labels, shown, strict=True)) + " ...")


def describe_task(task: Task, tokens: int = 12) -> dict[str, Any]:
    """A task's parameters and the beginning of a row of each kind; label -1 is not scored."""
    examples = []
    for split in ("ind", "aux") if task.has_auxiliary else ("ind",):
        row = task.sample(split, 1, torch.Generator().manual_seed(1)).token_ids
        labels = task.label(row)
        examples.append([task.vocab.decode(ids[0, :tokens].tolist()) for ids in (row, labels)])
    return {
        "name": task.name,
        "summary": task.summary,
        "train_length": task.train_length,
        "ood_length": task.ood_length,
        "takes_bos": task.takes_bos,
        "examples": examples,
    }
