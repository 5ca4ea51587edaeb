"""`countlens tasks`"""

import json
from pathlib import Path
from typing import Any

import torch

from app.figures.counts import SPLIT_TITLES, counts_figure
from models.atomic import write_text
from models.errors import CountLensError
from training.tasks import TASKS, Selective, Task, make_task

FIGURE_ROWS = 20_000  # per panel; with ten kinds per row, a bar is accurate to a fraction of a percent


def print_tasks(as_json: bool) -> None:
    """Prints every task with an example of its own sampler and labeller."""
    tasks = [describe_task(make_task(name)) for name in TASKS]
    if as_json:
        print(json.dumps(tasks, indent=2))
        return
    for task in tasks:
        print(f"{task['name']}{'  [--bos]' if task['takes_bos'] else ''}")
        print(f"    {task['summary']}")
        print(f"    train on {task['train_length']} tokens, extrapolate to {task['ood_length']}")
        for tokens, labels in task["examples"]:
            widths = [max(len(token), len(label)) for token, label in zip(tokens, labels, strict=True)]
            for start, words in (("      ", tokens), ("   -> ", labels)):
                print(start + " ".join(f"{word:>{width}}" for word, width in zip(words, widths, strict=True)) + " ...")


def describe_task(task: Task, tokens: int = 12) -> dict[str, Any]:
    """A task's parameters, and the beginning of an example row for each kind of row; label -1 is not scored."""
    examples = []
    for split in ("ind", "aux") if task.has_auxiliary else ("ind",):
        rows = task.sample(split, 16, torch.Generator().manual_seed(1))
        row = rows.token_ids[rows.lengths.argmax()][None]
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


def write_counts_figure(path: Path) -> None:
    """Writes a page that shows how often kinds occur in the rows of selective counting, without and with bos."""
    if path.suffix != ".html":
        raise CountLensError(f"{path} is no .html file: the figure is a page")
    generator = torch.Generator().manual_seed(0)
    shares = {}
    for bos in (False, True):
        task = Selective(bos=bos)
        shares[f"selective{' + bos' * bos}"] = {
            split: (100 * task.count_shares(split, FIGURE_ROWS, generator)).tolist() for split in SPLIT_TITLES
        }
    write_text(path, counts_figure(shares).to_html(include_plotlyjs=True, div_id="counts"))
