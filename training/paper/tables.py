"""The paper's tables as data (Chang & Bisk, ICLR 2025), with which our counters are compared. No torch here.

Glossary: an *experiment* is what was trained and scored; a *cell* is an experiment in one of the tables, with the best
or the median of five seeds. One experiment can be in several tables: `mod10` without bos is in the main one and in
the one on bos.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from models.errors import unknown
from models.header import CheckpointInfo

Statistic = Literal["best", "median"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
PAPER_POLICY = "shifted"  # every number of the tables is with random shift
_DATA = Path(__file__).with_name("tables.csv")


class Experiment(NamedTuple):
    """What was trained and scored, except for the model's size."""

    task: str
    bos: bool
    architecture: str  # positional scheme of a transformer, family of a recurrent counter
    layers: int
    causal: bool
    train_length: int
    ood_length: int


@dataclass(frozen=True)
class PaperCell:
    """One entry of a table; scores are percent."""

    table: str  # key of PAPER_TABLES
    task: str
    bos: bool
    architecture: str  # positional scheme of a transformer, family of a recurrent counter
    layers: int
    statistic: Statistic  # over five seeds
    ind: float
    ood: float
    width: int | None  # given only in tables about size; None fits any width of ours
    heads: int | None  # likewise
    causal: bool
    train_length: int
    ood_length: int

    @property
    def experiment(self) -> Experiment:
        return Experiment(*(getattr(self, field) for field in Experiment._fields))

    def is_about(self, experiment: Experiment, width: int | None, heads: int | None) -> bool:
        """Whether a counter of this experiment and size fits the cell. A size that is None, here or there, fits any."""
        sizes = ((self.width, width), (self.heads, heads))
        return self.experiment == experiment and all(None in pair or pair[0] == pair[1] for pair in sizes)


@dataclass(frozen=True)
class PaperTable:
    """What a table of the paper contains and shows."""

    section: str
    statistic: Statistic
    title: str  # what it contains
    shows: str  # what a reader can see in it


PAPER_TABLES: dict[str, PaperTable] = {
    "counting_results": PaperTable(
        "section 4",
        "best",
        "Transformers on every form of counting",
        "Each positional scheme extrapolates on some forms and fails on others; none on all. Knowing the list of "
        "number words alone never helps.",
    ),
    "counting_results_other_architectures": PaperTable(
        "appendix A",
        "best",
        "Recurrent architectures on every form of counting",
        "RNN and LSTM extrapolate nearly everywhere; S4, Mamba and RWKV-6 lose some of it to parallel training.",
    ),
    "counting_results_median": PaperTable(
        "appendix B",
        "median",
        "Transformers on every form of counting, the typical seed",
        "Where a scheme can extrapolate, many of its seeds still do not: sine, ape and spe most of all.",
    ),
    "counting_results_other_architectures_median": PaperTable(
        "appendix B",
        "median",
        "Recurrent architectures on every form of counting, the typical seed",
        "RNN, LSTM and S4 hardly depend on the seed; Mamba and RWKV-6 do.",
    ),
    "bos": PaperTable(
        "appendix C",
        "best",
        "nope and rope, without and with a first token of its own",
        "Without bos they cannot even fit rows of equal tokens; with it they fit, and still do not extrapolate.",
    ),
    "first_tok_homogeneous_results": PaperTable(
        "appendix D",
        "best",
        "Which token is the first, when all are equal",
        "sine, ape and spe tell equal tokens apart even when 4 wide; nope and rope cannot.",
    ),
    "first_tok_heterogeneous_results": PaperTable(
        "appendix E",
        "best",
        "Which token is the first, when they differ",
        "A causal mask is enough: nope finds the first token with it, and not without it.",
    ),
    "selective_bos": PaperTable(
        "appendix E",
        "best",
        "Selective counting, without and with a first token of its own",
        "With bos one layer is enough, and the schemes that lagged behind nope catch up; rope does not.",
    ),
    "shiftedstart_extremify_ratio": PaperTable(
        "appendix G",
        "best",
        "How far rope extrapolates from a shifted start",
        "Twice the training length goes well; four and eight times it worse and worse.",
    ),
}


@cache
def paper_cells(table: str | None = None) -> tuple[PaperCell, ...]:
    """The cells of a table, or of all of them, in the paper's order."""
    if table is None:
        with _DATA.open(newline="") as file:  # not with pandas, whose import would delay the Zoo page
            lines = [{name: text or None for name, text in line.items()} for line in csv.DictReader(file)]
        return msgspec.convert(lines, tuple[PaperCell, ...], strict=False)
    if table not in PAPER_TABLES:
        raise unknown("table", table, PAPER_TABLES)
    return tuple(cell for cell in paper_cells() if cell.table == table)


@dataclass(frozen=True)
class PaperNumbers:
    """The paper's numbers for one experiment; None where it has none."""

    best: PaperCell | None
    median: PaperCell | None


def paper_numbers(
    task: str,
    bos: bool,
    architecture: str,
    layers: int,
    *,
    width: int | None = None,
    heads: int | None = None,
    causal: bool = True,
    train_length: int | None = None,
    ood_length: int | None = None,
) -> PaperNumbers | None:
    """The paper's best and median IND and OOD for a counter; None if it has neither. Lengths default to the paper's.

    >>> paper_numbers("mod10", False, "ape", 2).best.ood
    100.0
    >>> paper_numbers("mod10", True, "ape", 2) is None
    True
    """
    usual = next((cell for cell in paper_cells() if cell.task == task), None)
    if usual is None:
        return None
    lengths = train_length or usual.train_length, ood_length or usual.ood_length
    experiment = Experiment(task, bos, architecture, layers, causal, *lengths)
    cells = [cell for cell in paper_cells() if cell.is_about(experiment, width, heads)]
    # If several tables have the experiment, the first is taken: later ones repeat its numbers, sometimes rounded.
    best = next((cell for cell in cells if cell.statistic == "best"), None)
    median = next((cell for cell in cells if cell.statistic == "median"), None)
    return PaperNumbers(best, median) if cells else None


def paper_numbers_of(info: CheckpointInfo) -> PaperNumbers | None:
    """The paper's numbers for the counter of a checkpoint; None if it has none."""
    if info.task is None or info.policy != PAPER_POLICY or "n_layers" not in info.model:
        return None
    task, model = info.task, info.model
    return paper_numbers(
        task["name"],
        task.get("bos", False),
        info.architecture,
        model["n_layers"],
        width=model.get("d_model"),
        heads=model.get("n_heads"),
        causal=model.get("causal", True),
        train_length=task.get("train_length"),
        ood_length=task.get("ood_length"),
    )


def printed(accuracy: float) -> str:
    """An accuracy in percent as the paper's tables print it, in at most four characters.

    >>> printed(100.0), printed(8.2357), printed(99.97)
    ('100', '8.2', '100')
    """
    text = f"{accuracy:.1f}"
    return "100" if text == "100.0" else text
