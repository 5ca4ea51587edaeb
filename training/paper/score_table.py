"""The scores of many runs as one CSV file, one line per run. They are compared with the paper's tables."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.atomic import write_text
from models.border import IN_FILE, convert, field_hints, read_text
from models.errors import CountLensError
from models.header import read_info
from training.config import architecture_name
from training.paper.tables import PAPER_POLICY, Experiment, PaperNumbers, paper_numbers

if TYPE_CHECKING:
    from training.run.folder import RunFolder

SCORES = "scores.csv"  # its name in the folder of its counters
MAX_BYTES = 64 * 2**20  # size of a score table


@dataclass(frozen=True)
class ScoreRow:
    """One finished run: its settings and its scores."""

    name: str  # such as mod10/ape-2L/seed0
    task: str
    bos: bool
    architecture: str  # positional scheme of a transformer, family of a recurrent counter
    layers: int
    width: int
    heads: int | None  # None for a recurrent counter
    causal: bool
    train_length: int
    ood_length: int
    policy: str  # position policy
    preset: str
    seed: int
    ind: float  # percent
    ood: float  # percent
    last_ind: float  # percent, of the last checkpoint, which was not chosen by its scores
    last_ood: float
    best_step: int  # step of the checkpoint that `ind` and `ood` belong to
    steps: int
    seconds: float  # spent on training
    recipe: str  # RunConfig.recipe: rows of a cell are comparable if they share it

    @property
    def experiment(self) -> Experiment:
        return Experiment(*(getattr(self, field) for field in Experiment._fields))

    @property
    def cell(self) -> str:
        return cell_of(self.name)

    @property
    def paper(self) -> PaperNumbers | None:
        """The paper's numbers for such a run; None if it has none."""
        if self.policy != PAPER_POLICY:
            return None
        return paper_numbers(**self.experiment._asdict(), width=self.width, heads=self.heads)

    @property
    def rank(self) -> tuple[float, int]:
        """A sort key, larger is better: by the mean of IND and OOD; among equals the lower seed wins."""
        return self.ind + self.ood, -self.seed


COLUMNS = [field.name for field in fields(ScoreRow)]


def cell_of(name: str) -> str:
    """A run's name without its seed: runs that differ only in their seed share it.

    >>> cell_of("mod10/ape-2L/seed0"), cell_of("demo")
    ('mod10/ape-2L', 'demo')
    """
    return re.sub(r"(?<=.)/seed\d+$", "", name)


def score_of_run(run: "RunFolder", name: str) -> ScoreRow:
    """The score row of a finished run. Refuses a run that is not finished or has no scores."""
    if not run.finished:
        raise CountLensError(f"{run.path} is not finished: go on with `countlens train --resume {run.path}`")
    config, info, metrics = run.config(), read_info(run.best), run.metrics()
    data, model = config.data, config.model
    has_scores = all({"ind", "ood"} <= scores.keys() for scores in (info.scores, info.last_scores))
    if not metrics or not has_scores or info.step is None:
        raise CountLensError(f"{run.path} has no scores: train it again")
    return ScoreRow(
        name=name,
        task=data.task,
        bos=data.bos,
        architecture=architecture_name(model),
        layers=model.n_layers,
        width=model.d_model,
        heads=model.n_heads,
        causal=model.causal,
        train_length=data.train_length,
        ood_length=data.ood_length,
        policy=data.policy,
        preset=config.preset,
        seed=config.seed,
        ind=round(info.scores["ind"], 4),
        ood=round(info.scores["ood"], 4),
        last_ind=round(info.last_scores["ind"], 4),
        last_ood=round(info.last_scores["ood"], 4),
        best_step=info.step,
        steps=config.optimiser.steps,
        seconds=round(metrics[-1]["seconds"], 1),
        recipe=config.recipe,
    )


def merge_scores(*tables: Iterable[ScoreRow]) -> list[ScoreRow]:
    """The rows of all tables, sorted. If two rows have the same name, the later one is kept."""
    by_name = {row.name: row for table in tables for row in table}
    return sorted(by_name.values(), key=_order)


def write_scores(path: Path, rows: Iterable[ScoreRow]) -> None:
    """Writes the table, whole or not at all."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_format(value) for value in astuple(row)] for row in merge_scores(rows))
    write_text(path, text.getvalue())


def read_scores(path: Path) -> list[ScoreRow]:
    """The rows of a table that `write_scores` wrote; additional columns are ignored."""
    # Not with pandas, which guesses types: here every value is checked, and an error names the line.
    try:
        reader = csv.DictReader(StringIO(read_text(path, MAX_BYTES), newline=""))
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise CountLensError(
                f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: "
                "write it again with `countlens ship`, or read the runs themselves with --runs"
            )
        return [_parse(line, f"{path}, line {reader.line_num}") for line in reader]
    except csv.Error as error:
        raise CountLensError(f"cannot read {path}: {error}") from error


def _parse(line: Mapping[str, str | None], where: str) -> ScoreRow:
    try:
        hints = field_hints(ScoreRow).items()
        return ScoreRow(
            **{name: convert(name, line[name] or None, hint, IN_FILE, as_text=True) for name, hint in hints}
        )
    except CountLensError as error:
        raise CountLensError(f"{where}: {error}") from error


def _format(value: Any) -> Any:
    """A value as the file has it: truth values as 0 or 1, numbers with at most four digits after the point."""
    if isinstance(value, bool):
        return int(value)
    return round(value, 4) if isinstance(value, float) else value


def _order(row: ScoreRow) -> tuple[Any, ...]:
    """A sort key: by the run's settings, then by its seed as a number."""
    size = (row.layers, row.width, row.heads or 0, not row.causal, row.train_length, row.ood_length)
    return (row.task, row.bos, row.architecture, *size, row.policy, row.preset, row.seed, row.name)
