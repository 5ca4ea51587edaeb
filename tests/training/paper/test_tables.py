"""The paper's numbers, and how a counter finds its own."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from models.errors import CountLensError
from models.families import FAMILIES
from models.header import CheckpointInfo
from models.schemes import SCHEMES
from training.paper.agreement import agreement
from training.paper.tables import PAPER_TABLES, PaperCell, paper_cells, paper_numbers, paper_numbers_of
from training.tasks import TASKS, make_task

PRINTED = Path(__file__).parents[2] / "paper_data/tables.csv"


def test_every_cell_is_of_a_known_table_task_and_architecture() -> None:
    architectures = {*SCHEMES, *FAMILIES} - {"transformer"}
    for cell in paper_cells():
        assert cell.table in PAPER_TABLES
        assert cell.statistic == PAPER_TABLES[cell.table].statistic
        assert cell.task in TASKS
        assert cell.architecture in architectures
        assert 0 <= min(cell.ind, cell.ood) <= max(cell.ind, cell.ood) <= 100


def test_the_tables_have_as_many_cells_as_they_are_large() -> None:
    assert Counter(cell.table for cell in paper_cells()) == {
        "counting_results": 18 * 5,
        "counting_results_other_architectures": 6 * 3 * 5,
        "counting_results_median": 16 * 5,
        "counting_results_other_architectures_median": 6 * 3 * 5,
        "bos": 6 * 4,
        "selective_bos": 4 * 5,
        "first_tok_homogeneous_results": 2 * 5,
        "first_tok_heterogeneous_results": 2,
        "shiftedstart_extremify_ratio": 5,
    }
    assert set(PAPER_TABLES) == {cell.table for cell in paper_cells()}


def test_lengths_are_the_tasks_own_but_in_the_table_that_varies_them() -> None:
    for cell in paper_cells():
        task = make_task(cell.task)
        if cell.table != "shiftedstart_extremify_ratio":
            assert (cell.train_length, cell.ood_length) == (task.train_length, task.ood_length)
    varied = paper_cells("shiftedstart_extremify_ratio")
    assert [(cell.train_length, cell.ood_length, cell.ood) for cell in varied] == [
        *((25, 50, 84.3), (50, 100, 98.9), (25, 100, 30.9), (50, 200, 22.1), (25, 200, 11.4))
    ]


def test_tables_that_repeat_a_cell_agree_with_each_other() -> None:
    """Some round: 96.0 in one table is 100 in another. Whether that is a success must not depend on the table."""
    seen: dict[object, PaperCell] = {}
    repeated = 0
    for cell in paper_cells():
        first = seen.setdefault((cell.experiment, cell.width, cell.statistic), cell)
        repeated += first is not cell
        assert "differ" not in (agreement(cell.ind, first.ind), agreement(cell.ood, first.ood))
    assert repeated == 10 + 10 + 1  # of bos, of selective_bos, and the usual length of the last table


def test_the_numbers_are_those_of_the_paper() -> None:
    """The other copy is laid out as the paper prints it: settings in the task's name, one column per architecture."""
    with PRINTED.open(newline="") as file:
        lines = list(csv.DictReader(file))
    settings = ("table", "task", "bos", "layers", "statistic")
    printed = {
        (*(line[name] for name in settings), architecture): tuple(map(float, scores.split("/")))
        for line in lines
        for architecture, scores in line.items()
        if architecture not in settings and scores
    }
    assert len(printed) == 411
    ours = {
        (
            *(cell.table, printed_task(cell), str(int(cell.bos)), str(cell.layers), cell.statistic),
            cell.architecture,
        ): (cell.ind, cell.ood)
        for cell in paper_cells()
    }
    assert ours == printed


def printed_task(cell: PaperCell) -> str:
    """The task with the settings that its table varies."""
    if cell.table == "shiftedstart_extremify_ratio":
        return f"{cell.task} (train {cell.train_length}, ood {cell.ood_length})"
    if cell.width is None:
        return cell.task
    size = f"{cell.layers}L {cell.heads}h {cell.width}d"
    if cell.table == "first_tok_heterogeneous_results":
        size += ", causal" if cell.causal else ", not causal"
    return f"{cell.task} ({size})"


def test_a_counter_finds_best_and_median() -> None:
    numbers = paper_numbers("selective", False, "sine", 4)
    assert numbers is not None
    assert numbers.best is not None
    assert numbers.median is not None
    assert (numbers.best.ind, numbers.best.ood) == (100, 100)
    assert (numbers.median.ind, numbers.median.ood) == (100, 99.8)


def test_the_main_table_is_asked_first() -> None:
    """The table on bos prints this cell's 96.0 as 100."""
    numbers = paper_numbers("selective", False, "nope", 1)
    assert numbers is not None
    assert numbers.best is not None
    assert (numbers.best.table, numbers.best.ind) == ("counting_results", 96.0)


def test_a_cell_that_only_one_statistic_has_lacks_the_other() -> None:
    numbers = paper_numbers("mod10", True, "rope", 2)
    assert numbers is not None
    assert numbers.best is not None
    assert (numbers.best.table, numbers.best.ood, numbers.median) == ("bos", 40.3, None)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("mod7", {}),
        ("mod10", {"layers": 3}),
        ("mod10", {"bos": True, "architecture": "sine"}),
        ("mod10", {"ood_length": 200}),
        ("mod10", {"causal": False}),
        ("first_tok_homogeneous", {"layers": 1, "width": 16}),
        ("first_tok_homogeneous", {"layers": 1, "width": 32, "heads": 2}),
    ],
)
def test_what_the_paper_did_not_train_has_no_numbers(task: str, settings: dict[str, object]) -> None:
    known = {"bos": False, "architecture": "ape", "layers": 2} | settings
    assert paper_numbers(task, **known) is None  # type: ignore[arg-type]


def info(task: str = "mod10", policy: str = "shifted", **model: object) -> CheckpointInfo:
    settings = make_task(task)
    return CheckpointInfo(
        family="transformer",
        model={"position": "ape", "n_layers": 2, "d_model": 64, "n_heads": 4, "causal": True} | model,
        task={"name": task, "bos": False, "train_length": settings.train_length, "ood_length": settings.ood_length},
        policy=policy,
    )


def ood_of(info: CheckpointInfo) -> float | None:
    numbers = paper_numbers_of(info)
    return None if numbers is None or numbers.best is None else numbers.best.ood


def test_a_checkpoint_finds_its_numbers_at_any_width() -> None:
    assert ood_of(info()) == 100
    assert ood_of(info(d_model=256, n_layers=1)) == 71.2
    assert ood_of(info("first_tok_heterogeneous", position="nope", n_layers=1, d_model=4, n_heads=1)) == 100
    assert ood_of(info("first_tok_heterogeneous", position="nope", n_layers=1, d_model=4, n_heads=1, causal=False)) == 0
    lstm = CheckpointInfo("lstm", {"n_layers": 1, "d_model": 8}, task={"name": "selective"}, policy="shifted")
    assert ood_of(lstm) == 100


def test_a_checkpoint_under_another_policy_or_of_no_task_has_none() -> None:
    assert paper_numbers_of(info(policy="contiguous")) is None
    assert paper_numbers_of(CheckpointInfo("lstm", {"n_layers": 1})) is None


def test_an_unknown_table_is_refused_with_the_nearest() -> None:
    with pytest.raises(CountLensError, match="did you mean counting_results"):
        paper_cells("counting_result")


def test_it_needs_no_torch() -> None:
    code = "import sys, training.paper.tables as p; p.paper_cells(); assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
