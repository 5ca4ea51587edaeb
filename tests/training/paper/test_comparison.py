"""Ours beside the paper's, on scores that are made to agree and to differ."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from score_rows import row_of

import training.paper.agreement
from models.errors import CountLensError
from models.find import SHIPPED
from training.paper.agreement import Accuracy, agreement
from training.paper.comparison import ComparedCell, Comparison, Share, compare
from training.paper.differences import Difference, read_differences, reason_for
from training.paper.score_table import read_scores
from training.paper.tables import PAPER_TABLES, PaperCell, paper_cells


def cell_of(table: str, task: str, architecture: str, layers: int, bos: bool = False) -> PaperCell:
    (cell,) = [
        cell
        for cell in paper_cells(table)
        if (cell.task, cell.architecture, cell.layers, cell.bos) == (task, architecture, layers, bos)
    ]
    return cell


def trained(comparison: Comparison) -> list[ComparedCell]:
    return [cell for table in comparison.tables for cell in table.cells if cell.ours is not None]


APE = cell_of("counting_results", "mod10", "ape", 2)  # 100 / 100 in the paper
SPE = cell_of("counting_results", "mod10", "spe", 2)  # 100 / 8.2
NOPE = cell_of("counting_results", "mod10", "nope", 2)  # 12.0 / 11.8


def test_success_is_95_percent_as_printed() -> None:
    assert agreement(95.0, 100.0) == "both succeed"
    assert agreement(94.95, 100.0) == "both succeed"  # printed as 95.0
    assert agreement(94.9, 100.0) == "differ"
    assert agreement(94.9, 0.0) == "both fail"
    assert agreement(98.0, 91.8) == "differ"


def test_each_side_of_a_cell_is_judged_by_itself() -> None:
    rows = [row_of(APE, 100.0, 60.0), row_of(SPE, 99.0, 50.0), row_of(NOPE, 96.0, 97.0)]
    found = {cell.paper: (cell.ind, cell.ood) for cell in compare(rows, tables=["counting_results"]).cells if cell.ours}
    assert found == {
        APE: ("both succeed", "differ"),
        SPE: ("both succeed", "both fail"),
        NOPE: ("differ", "differ"),
    }


def test_shares_count_sides_and_whole_cells() -> None:
    rows = [row_of(APE, 100.0, 60.0), row_of(SPE, 99.0, 50.0), row_of(NOPE, 96.0, 10.0)]
    (table,) = compare(rows, tables=["counting_results"]).tables
    assert (table.shares.ind, table.shares.ood, table.shares.cells) == (Share(2, 3), Share(2, 3), Share(1, 3))


def test_the_papers_own_numbers_agree_with_it_everywhere() -> None:
    cells = [cell for cell in paper_cells() if cell.statistic == "best"]
    rows = [row_of(cell, cell.ind, cell.ood, name=f"run{number}") for number, cell in enumerate(cells)]
    shares = compare(rows).shares("best")
    assert shares.ind == shares.ood == shares.cells == Share(220, 220)  # 241 cells, 21 of them twice


def test_another_threshold_gives_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row_of(APE, 100.0, 90.0)]
    assert compare(rows).odd_cells
    monkeypatch.setattr(training.paper.agreement, "SUCCESS", 90.0)
    assert not compare(rows).odd_cells


def test_best_is_by_the_mean_and_median_is_of_each_side() -> None:
    rows = [row_of(APE, 90.0, 40.0, 0), row_of(APE, 100.0, 39.0, 1), row_of(APE, 96.0, 30.0, 2)]
    best, middle = trained(compare(rows, tables=["counting_results", "counting_results_median"]))
    assert best.ours is not None
    assert (best.ours.name, best.ours.seeds, best.ours.preset) == ("mod10/ape-2L/seed1", 3, "small")
    assert best.numbers == Accuracy(100.0, 39.0)
    assert middle.numbers == Accuracy(96.0, 39.0)


def test_a_table_of_medians_is_compared_with_our_median() -> None:
    """One good seed of three is the best, and the typical one fails; the paper's typical one succeeds (99.5)."""
    rows = [row_of(APE, 100.0, ood, seed) for seed, ood in enumerate((99.0, 40.0, 30.0))]
    best, middle = trained(compare(rows, tables=["counting_results", "counting_results_median"]))
    assert (best.ood, middle.ood) == ("both succeed", "differ")


def test_one_run_answers_every_table_that_has_it_and_is_counted_once() -> None:
    comparison = compare([row_of(NOPE, 10.0, 11.0)])
    assert [cell.paper.table for cell in trained(comparison)] == ["counting_results", "counting_results_median", "bos"]
    assert comparison.shares("best").cells == Share(1, 1)
    assert comparison.shares().cells == Share(2, 2)


def test_sizes_are_not_mixed_the_one_with_the_best_seed_speaks() -> None:
    narrow = [row_of(APE, 100.0, ood, seed) for seed, ood in enumerate((98.0, 10.0, 10.0))]
    wide = [
        row_of(APE, 100.0, ood, seed, name=f"mod10/ape-2L-256d/seed{seed}", width=256, preset="paper")
        for seed, ood in enumerate((99.0, 97.0))
    ]
    for rows in (narrow + wide, wide + narrow):
        best, middle = trained(compare(rows, tables=["counting_results", "counting_results_median"]))
        assert best.ours is not None
        assert (best.ours.width, best.ours.seeds, best.ours.preset) == (256, 2, "paper")
        assert middle.numbers == Accuracy(100.0, 98.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "contiguous"},
        {"bos": True},
        {"layers": 3},
        {"causal": False},
        {"ood_length": 200},
        {"train_length": 25},
        {"task": "mod7"},
        {"architecture": "rnn2"},
    ],
)
def test_a_run_of_something_else_answers_nothing(changes: dict[str, object]) -> None:
    assert not trained(compare([row_of(APE, 100.0, 100.0, **changes)]))


def test_where_the_paper_says_the_width_only_that_width_answers() -> None:
    cells = paper_cells("first_tok_homogeneous_results")
    (four,) = [cell for cell in cells if cell.width == 4 and cell.architecture == "ape"]
    assert [cell.paper for cell in trained(compare([row_of(four, 100.0, 100.0)]))] == [four]
    assert not trained(compare([row_of(four, 100.0, 100.0, width=16)]))


def test_cells_that_nobody_trained_stay_in_the_tables() -> None:
    comparison = compare([])
    assert sum(len(table.cells) for table in comparison.tables) == len(paper_cells())
    assert comparison.shares().cells == Share(0, 0)
    assert not comparison.odd_cells


def test_the_frame_has_a_line_for_each_side() -> None:
    reasons = [Difference("too short", {"task": ("mod10",)})]
    frame = compare([row_of(APE, 100.0, 60.0)], reasons).to_frame()
    assert len(frame) == 2 * len(paper_cells())
    ours = frame[frame["ours"].notna() & (frame["statistic"] == "best")].set_index("side")
    assert ours["agreement"].to_dict() == {"ind": "both succeed", "ood": "differ"}
    assert ours["reason"].fillna("").to_dict() == {"ind": "", "ood": "too short"}
    assert ours.loc["ood", ["paper", "ours", "seeds", "preset", "run", "width"]].tolist() == [
        *(100.0, 60.0, 1, "small", "mod10/ape-2L/seed0", 64)
    ]
    assert frame["agreement"].notna().sum() == 4


def test_only_cells_that_differ_have_a_reason() -> None:
    reasons = [Difference("too short", {"task": ("mod10",)})]
    comparison = compare([row_of(APE, 100.0, 60.0), row_of(SPE, 100.0, 8.0)], reasons)
    said = {cell.paper.architecture: cell.reason for cell in comparison.cells if cell.ours}
    assert said == {"ape": "too short", "spe": None}


def write(path: Path, text: str) -> list[Difference]:
    path.write_text(text)
    return read_differences(path)


def test_a_reason_is_for_the_cells_that_have_all_its_values(tmp_path: Path) -> None:
    reasons = write(
        tmp_path / "differences.toml",
        """
        [[difference]]
        task = "mod10"
        architecture = ["ape", "sine"]
        layers = 2
        statistic = "best"
        reason = "first"

        [[difference]]
        task = "mod10"
        reason = "second"
        """,
    )
    assert reason_for(APE, reasons) == "first"
    assert reason_for(cell_of("counting_results", "mod10", "sine", 2), reasons) == "first"
    assert reason_for(cell_of("counting_results", "mod10", "ape", 4), reasons) == "second"
    assert reason_for(cell_of("counting_results_median", "mod10", "ape", 2), reasons) == "second"
    assert reason_for(cell_of("counting_results", "selective", "ape", 2), reasons) is None


def test_without_a_file_there_are_no_reasons(tmp_path: Path) -> None:
    assert read_differences(tmp_path / "differences.toml") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[difference]]\ntask = 'mod10'", "give a reason"),
        ("[[difference]]\nreason = 'all of them'", "at least one of task"),
        ("[[difference]]\nreason = 'x'\nscheme = 'ape'", "unknown key 'scheme'"),
        ("[[differences]]\nreason = 'x'", r"takes only \[\[difference\]\]"),
        ("[[difference]", "cannot read"),
    ],
)
def test_a_file_of_reasons_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        write(tmp_path / "differences.toml", text)


def stale_values(differences: Iterable[Difference], differing: Sequence[PaperCell]) -> list[str]:
    """What the reasons name that no longer differs: each a line to mend in the file.

    Every value of every reason must be that of a differing cell which the reason is for.
    """
    stale = []
    for difference in differences:
        cells = [cell for cell in differing if difference.is_for(cell)]
        for key, allowed in difference.values.items():
            gone = set(allowed) - {getattr(cell, key) for cell in cells}
            stale += [f"{key} = {value!r} of {difference.reason!r}" for value in allowed if value in gone]
    return stale


@pytest.mark.parametrize(
    ("values", "stale"),
    [
        ({"task": ("mod10",), "architecture": ("ape",)}, []),
        ({"task": ("mod10",), "architecture": ("ape", "spe")}, ["architecture = 'spe' of 'why'"]),
        ({"task": ("mod10",), "layers": (4,)}, ["task = 'mod10' of 'why'", "layers = 4 of 'why'"]),
    ],
)
def test_values_of_a_reason_that_no_longer_differ_are_found(
    values: dict[str, tuple[object, ...]], stale: Sequence[str]
) -> None:
    assert stale_values([Difference("why", values)], [APE]) == list(stale)


def test_a_cell_that_is_far_off_asks_for_a_reason_on_the_same_side_too() -> None:
    spe = cell_of("counting_results", "mod10", "spe", 2)  # 100 and 8.2 in the paper
    reasons = [Difference("why", {"task": ("mod10",)})]

    def odd(ind: float, ood: float) -> tuple[bool, tuple[str, ...], str | None]:
        cell = trained(compare([row_of(spe, ind, ood)], reasons))[0]
        return cell.differs, cell.odd_sides, cell.reason

    assert odd(97.0, 30.0) == (False, (), None)
    assert odd(100.0, 40.0) == (False, ("ood",), "why")
    assert odd(60.0, 30.0) == (True, ("ind",), "why")


def test_the_shipped_reasons_are_all_for_cells_that_differ() -> None:
    reasons = read_differences(SHIPPED / "differences.toml")
    differing = [cell.paper for cell in compare(read_scores(SHIPPED / "scores.csv"), reasons).odd_cells]
    assert stale_values(reasons, differing) == []


def test_every_table_can_be_asked_for_alone() -> None:
    for name in PAPER_TABLES:
        assert [table.name for table in compare([], tables=[name]).tables] == [name]
