"""The seeds of a cell of the zoo: every one that was scored, and the weights of those that are here. Needs no torch."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from app.explorer.catalogue import Catalogue, Entry
from models.schemes import SCHEMES
from training.paper.agreement import Accuracy
from training.paper.score_table import SCORES, ScoreRow, cell_of, merge_scores, read_scores


@dataclass(frozen=True)
class SeedScores:
    """One seed of a cell."""

    name: str  # of its run
    best: Accuracy | None  # of its best checkpoint; None: not scored
    last: Accuracy | None  # of its last one
    entry: Entry | None  # None: the weights are not here
    command: str | None  # what trains it; None where it is here


def read_all_scores(catalogue: Catalogue) -> list[ScoreRow]:
    """The score tables that lie in the explorer's folders, as one."""
    tables = [folder / SCORES for folder in catalogue.folders if (folder / SCORES).is_file()]
    return merge_scores(*(read_scores(path) for path in tables))


def cells_of(rows: Iterable[ScoreRow], entries: Iterable[Entry]) -> list[str]:
    """Every cell that has a seed, in order."""
    names = [row.name for row in rows] + [entry.name for entry in entries]
    return list(dict.fromkeys(cell_of(name) for name in names))


def seeds_of(cell: str, rows: Iterable[ScoreRow], entries: Iterable[Entry]) -> list[SeedScores]:
    """The seeds of a cell, by number: what the score table says, or else the counter's own file."""
    scored = {row.name: row for row in rows if row.cell == cell}
    here = {entry.name: entry for entry in entries if cell_of(entry.name) == cell}
    names = sorted({*scored, *here}, key=lambda name: (len(name), name))  # seed 10 after seed 9
    return [_seed(name, scored.get(name), here.get(name)) for name in names]


def _seed(name: str, row: ScoreRow | None, entry: Entry | None) -> SeedScores:
    if row is not None:
        command = None if entry else train_command(row)
        return SeedScores(name, Accuracy(row.ind, row.ood), Accuracy(row.last_ind, row.last_ood), entry, command)
    assert entry is not None
    assert entry.info is not None
    return SeedScores(name, _accuracy(entry.info.scores), _accuracy(entry.info.last_scores), entry, None)


def _accuracy(scores: dict[str, float]) -> Accuracy | None:
    return Accuracy(scores["ind"], scores["ood"]) if {"ind", "ood"} <= scores.keys() else None


def median_of(seeds: Iterable[SeedScores]) -> Accuracy | None:
    """The medians of the best checkpoints."""
    scores = [seed.best for seed in seeds if seed.best is not None]
    if not scores:
        return None
    return Accuracy(median(score.ind for score in scores), median(score.ood for score in scores))


def train_options(row: ScoreRow) -> dict[str, str | int | bool]:
    """The options of `countlens train` that make such a run; what else its recipe has is the preset's."""
    kind = "position" if row.architecture in SCHEMES else "family"
    options: dict[str, str | int | bool] = {"preset": row.preset, "task": row.task, kind: row.architecture}
    options |= {"n_layers": row.layers, "d_model": row.width, "policy": row.policy}
    options |= {"train_length": row.train_length, "ood_length": row.ood_length, "steps": row.steps}
    options |= {"bos": True} if row.bos else {}
    options |= {"n_heads": row.heads} if row.heads is not None else {}
    options |= {} if row.causal else {"causal": False}
    return options | {"seed": row.seed}


def train_command(row: ScoreRow) -> str:
    """The command that makes such a run."""
    words = ["countlens", "train"]
    for name, value in train_options(row).items():
        option = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)
