"""The counters as a grid of tasks and architectures, each set beside the paper's numbers. Needs no torch."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from app.explorer.catalogue import Entry
from models.architectures import architectures
from models.header import CheckpointInfo
from training.paper.agreement import Accuracy, agreement
from training.paper.score_table import ScoreRow
from training.paper.tables import PAPER_POLICY, Experiment, PaperNumbers, paper_cells, paper_numbers_of

if TYPE_CHECKING:  # slow to import, and the first page does not need it
    import pandas as pd

Standing = Literal["goes on, as in the paper", "ends, as in the paper", "differs from the paper", "not in the paper"]


class ZooRow(NamedTuple):
    """A row of the grid."""

    task: str
    bos: bool
    layers: int
    variant: str  # what else the paper sets apart: width, no causal mask, lengths, policy

    @property
    def label(self) -> str:
        """The row's name.

        >>> ZooRow("mod10", True, 2, "").label
        'mod10, bos, 2 layers'
        """
        layers = f"{self.layers} layer{'s' if self.layers > 1 else ''}"
        return ", ".join(filter(None, [self.task, "bos" if self.bos else "", layers, self.variant]))


@dataclass(frozen=True)
class ZooCell:
    """The best counter of an experiment and architecture, and the paper's."""

    experiment: ZooRow
    architecture: str
    counter: str  # its name
    here: bool  # False: only its scores are, and not its weights
    ours: Accuracy
    paper: Accuracy | None  # its best seed
    others: int  # counters of the same cell that are not as good

    @property
    def standing(self) -> Standing:
        """How it compares: on the same side of success, in and out of distribution, or not."""
        if self.paper is None:
            return "not in the paper"
        sides = [agreement(ours, paper) for ours, paper in zip(self.ours, self.paper, strict=True)]
        if "differ" in sides:
            return "differs from the paper"
        return "goes on, as in the paper" if sides[1] == "both succeed" else "ends, as in the paper"


@dataclass(frozen=True)
class Grid:
    """Cells in the order of rows, then columns."""

    cells: tuple[ZooCell, ...]

    @property
    def experiments(self) -> list[ZooRow]:
        return list(dict.fromkeys(cell.experiment for cell in self.cells))

    @property
    def architectures(self) -> list[str]:
        present = {cell.architecture for cell in self.cells}
        known = [name for name in architectures() if name in present]
        return known + sorted(present.difference(known))

    def to_frame(self) -> "pd.DataFrame":
        """One line per cell."""
        import pandas as pd

        lines = [
            {
                **cell.experiment._asdict(),
                "architecture": cell.architecture,
                "counter": cell.counter,
                "here": cell.here,
                "ind": cell.ours.ind,
                "ood": cell.ours.ood,
                "paper_ind": cell.paper.ind if cell.paper else None,
                "paper_ood": cell.paper.ood if cell.paper else None,
                "standing": cell.standing,
            }
            for cell in self.cells
        ]
        return pd.DataFrame(lines)


class _Scored(NamedTuple):
    """A counter or a line of a score table."""

    name: str
    ours: Accuracy
    paper: PaperNumbers | None


def zoo_grid(entries: Iterable[Entry], scores: Iterable[ScoreRow] = ()) -> Grid:
    """The sound counters that have a task and scores, the best of each cell.

    A cell without a counter is filled from `scores`, if they have it.
    """
    counters: defaultdict[tuple[ZooRow, str], list[_Scored]] = defaultdict(list)
    for entry in entries:
        info = entry.info
        if info is not None and info.task is not None and {"ind", "ood"} <= info.scores.keys():
            paper = paper_numbers_of(info)
            row = _row(_experiment(info), info.model.get("d_model"), info.policy, paper)
            ours = Accuracy(info.scores["ind"], info.scores["ood"])
            counters[row, info.architecture].append(_Scored(entry.name, ours, paper))
    alone: defaultdict[tuple[ZooRow, str], list[_Scored]] = defaultdict(list)
    for score in scores:
        key = _row(score.experiment, score.width, score.policy, score.paper), score.architecture
        if key not in counters:
            alone[key].append(_Scored(score.name, Accuracy(score.ind, score.ood), score.paper))
    cells = [_cell(*key, found, here=key in counters) for key, found in (counters | alone).items()]
    return Grid(tuple(sorted(cells, key=_order)))


def _cell(row: ZooRow, architecture: str, found: list[_Scored], *, here: bool) -> ZooCell:
    name, ours, paper = max(found, key=lambda scored: sum(scored.ours))
    theirs = None if paper is None or paper.best is None else Accuracy(paper.best.ind, paper.best.ood)
    return ZooCell(row, architecture, name, here, ours, theirs, len(found) - 1)


def _order(cell: ZooCell) -> tuple[int, ZooRow, int]:
    tasks = list(dict.fromkeys(paper.task for paper in paper_cells()))  # the paper's order, own tasks last
    task = cell.experiment.task
    names = list(architectures())
    place = names.index(cell.architecture) if cell.architecture in names else len(names)
    return tasks.index(task) if task in tasks else len(tasks), cell.experiment, place


def _experiment(info: CheckpointInfo) -> Experiment:
    task, model = info.task or {}, info.model
    return Experiment(
        task["name"],
        bool(task.get("bos")),
        info.architecture,
        model.get("n_layers") or 0,
        model.get("causal", True),
        task.get("train_length", 0),
        task.get("ood_length", 0),
    )


def _row(experiment: Experiment, width: int | None, policy: str | None, paper: PaperNumbers | None) -> ZooRow:
    usual = next((cell for cell in paper_cells() if cell.task == experiment.task), None)
    lengths = experiment.train_length, experiment.ood_length
    variant = [
        f"{width} wide" if paper and paper.best and paper.best.width else "",
        "" if experiment.causal else "not causal",
        "" if usual is None or lengths == (usual.train_length, usual.ood_length) else f"{lengths[0]} to {lengths[1]}",
        "" if policy == PAPER_POLICY else f"{policy} positions",
    ]
    return ZooRow(experiment.task, experiment.bos, experiment.layers, ", ".join(part for part in variant if part))
