"""The card (README) of a zoo: its counters, their scores and their recipes, all read from the zoo's files."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.architectures import architectures
from models.families import build_counter, config_from_dict
from models.find import named_counters
from models.header import CheckpointInfo, read_info
from training.config import TrainConfig
from training.paper.agreement import SUCCESS
from training.paper.comparison import Share, compare
from training.paper.score_table import ScoreRow, cell_of
from training.paper.tables import paper_numbers_of, printed
from training.presets import resolve
from training.tasks import TASKS

INTRODUCTION = """\
# Trained counters

{count} counters, {megabytes:.1f} MB of weights, each trained on one CPU core: the best seed of each task and
architecture, by the mean of its accuracy in distribution (IND) and out of distribution (OOD). `countlens ship` makes
this page; a change by hand is lost with the next one.

A folder is a counter:

| file | what it is |
|---|---|
| `model.safetensors` | the weights under HookedTransformer's names, and in the metadata all that rebuilds the counter |
| `config.json` | everything that the run was told |
| `metrics.jsonl` | a line for each evaluation while it was trained: loss, IND, OOD, accuracy at each position |
| `snapshots/` | where there is one: checkpoints from the first step to the last, for learning dynamics |

`scores.csv` has every seed, shipped or not. `countlens tables` sets them beside the paper's tables: our best seed and
the paper's both reach {success:.0f} %, or both do not, in {agreement}.
{scores_only}
```python
from models import load_counter

counter = load_counter("{example}")
```

```sh
countlens list
countlens eval {example}
# This one again, on the same machine bit for bit:
countlens train --like {example} --out runs/again
# All of them again, every seed, and this folder made anew:
countlens sweep checkpoints/zoo.toml
countlens ship runs/zoo.jsonl
```

In the tables below, accuracy is in percent and OOD is scored only beyond the training length. *Last* is the run's last
checkpoint; the shipped one is its best, chosen by its scores, on all rows where a task's rows can be listed (modular,
helper, shifted start), so that the best is on the kind side. *Paper* is the best of its five seeds, with the median OOD
of the five in brackets. *Size* is layers x width and attention heads. *Recipe* is steps x rows per step, peak learning
rate (cosine, unless it says constant), weight decay and largest gradient norm.
"""
COLUMNS = (
    *("counter", "size", "parameters", "file", "IND / OOD", "last IND / OOD", "OOD of all seeds", "paper IND / OOD"),
    *("trained in", "recipe"),
)


@dataclass(frozen=True)
class _Entry:
    """One counter of the zoo."""

    name: str
    info: CheckpointInfo
    bytes: int
    seeds: tuple[ScoreRow, ...]  # of its cell, by seed

    @property
    def task(self) -> str:
        settings = self.info.task or {}
        return f"{settings.get('name', 'unknown task')}{' + bos' * settings.get('bos', False)}"

    @property
    def order(self) -> tuple[Any, ...]:
        """A sort key: the order of tasks and architectures in their registries."""
        tasks, names = list(TASKS), list(architectures())
        task = self.task.removesuffix(" + bos")
        return (tasks.index(task) if task in tasks else len(tasks), self.task, names.index(self.info.architecture))


def card(out: Path, rows: Sequence[ScoreRow]) -> str:
    """The card's text in Markdown, for a zoo in the folder `out` that has at least one counter."""
    entries = [
        _Entry(name, read_info(path), path.stat().st_size, tuple(row for row in rows if row.cell == cell_of(name)))
        for name, path in named_counters((out,))
    ]
    entries.sort(key=lambda entry: (*entry.order, entry.name))
    shares = compare(rows).shares("best")
    text = INTRODUCTION.format(
        count=len(entries),
        megabytes=sum(file.stat().st_size for file in out.rglob("*.safetensors")) / 1e6,
        success=SUCCESS,
        agreement=f"{_share(shares.ind)} cells IND, {_share(shares.ood)} OOD, {_share(shares.cells)} both",
        scores_only=_scores_only({row.cell for row in rows} - {cell_of(entry.name) for entry in entries}),
        example=next((entry.name for entry in entries if entry.task == "mod10"), entries[0].name),
    )
    for task in dict.fromkeys(entry.task for entry in entries):
        text += f"\n## {task}\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
        text += "".join(f"| {' | '.join(_line(entry))} |\n" for entry in entries if entry.task == task)
    return text


def _scores_only(cells: Collection[str]) -> str:
    """A paragraph that names the cells whose weights are not there."""
    if not cells:
        return ""
    names = ", ".join(f"`{cell}`" for cell in sorted(cells))
    return f"\nOf these cells there are scores and no weights, to keep this folder small: {names}.\n"


def _line(entry: _Entry) -> list[str]:
    info = entry.info
    shipped = next((row for row in entry.seeds if row.name == entry.name), None)
    ood = ", ".join(printed(row.ood) for row in entry.seeds)
    return [
        f"[{entry.name}]({entry.name})",
        _size(info.model),
        f"{_parameters(info):,}",
        f"{entry.bytes / 1e3:,.0f} kB",
        *(_accuracy(scores) for scores in (info.scores, info.last_scores)),
        f"{len(entry.seeds)}: {ood}" if entry.seeds else "?",
        _paper(info),
        _duration(shipped.seconds) if shipped else "?",
        _recipe(info.training),
    ]


def _accuracy(scores: dict[str, float]) -> str:
    return " / ".join(printed(scores[split]) if split in scores else "?" for split in ("ind", "ood"))


def _size(model: dict[str, Any]) -> str:
    heads = f", {model['n_heads']}h" if "n_heads" in model else ""
    return f"{model['n_layers']} x {model['d_model']}{heads}{'' if model.get('causal', True) else ', not causal'}"


def _parameters(info: CheckpointInfo) -> int:
    """The number of learnt parameters; fixed tables, which the file also holds, are not counted."""
    with torch.device("meta"):  # shapes are enough
        counter = build_counter(config_from_dict(info.family, info.model))
    return sum(parameter.numel() for parameter in counter.parameters() if parameter.requires_grad)


def _paper(info: CheckpointInfo) -> str:
    numbers = paper_numbers_of(info)
    if numbers is None:
        return ""
    best = "" if numbers.best is None else f"{printed(numbers.best.ind)} / {printed(numbers.best.ood)}"
    return best + ("" if numbers.median is None else f" ({printed(numbers.median.ood)})")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _recipe(training: dict[str, Any]) -> str:
    if "optimiser" not in training:  # a counter that was built by hand has none
        return "?"
    recipe = resolve(TrainConfig.from_dict(training)).optimiser
    algorithm = "" if recipe.algorithm is None else f", {recipe.algorithm}"
    schedule = "" if recipe.schedule == "cosine" else f" {recipe.schedule}"
    slower = "" if recipe.embed_lr is None else f" (embedding {recipe.lr * recipe.embed_lr:g})"
    growing = "" if recipe.length_warmup is None else f", rows grow for {recipe.length_warmup:,}"
    of_parts = {"embedding": recipe.embed_decay, "positions": recipe.position_decay}
    apart = ", ".join(f"{part} {decay:g}" for part, decay in of_parts.items() if decay is not None)
    decay = f"wd {recipe.weight_decay:g}" + (f" ({apart})" if apart else "")
    return (
        f"{recipe.steps:,} x {recipe.batch_size}{growing}{algorithm}, lr {recipe.lr:g}{schedule}{slower}, {decay}, "
        f"clip {recipe.clip:g}"
    )


def _share(share: Share) -> str:
    return f"{share.agree} of {share.trained}"
