"""Closeness to the paper: against scikit-learn and scipy on random scores, and on scores that say nothing."""

from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import spearmanr
from score_rows import row_of
from sklearn.metrics import cohen_kappa_score

from training.paper.closeness import LEAST_SEEDS, Closeness, closeness
from training.paper.comparison import compare
from training.paper.summary import PAPER_MEDIANS, summarise, summary_frame
from training.paper.tables import PaperCell, paper_cells

TABLE = "counting_results"
CELLS = paper_cells(TABLE)


def drawn(seed: int) -> dict[PaperCell, float]:
    """OOD accuracies that have something to do with the paper's."""
    noise = np.random.default_rng(seed).normal(0, 25, len(CELLS))
    return {cell: float(np.clip(cell.ood + more, 0, 100)) for cell, more in zip(CELLS, noise, strict=True)}


def near(ours: dict[PaperCell, float]) -> Closeness:
    rows = [row_of(cell, 100.0, ood) for cell, ood in ours.items()]
    (table,) = compare(rows, tables=[TABLE]).tables
    return closeness(table.cells, "ood")


@pytest.mark.parametrize("seed", range(3))
def test_the_numbers_are_those_of_other_libraries(seed: int) -> None:
    ours = drawn(seed)
    found = near(ours)
    papers, mine = np.array([[cell.ood, round(ours[cell], 4)] for cell in CELLS]).T
    assert (found.trained, found.cells) == (90, 90)
    assert found.mean_difference == pytest.approx(np.abs(mine - papers).mean(), abs=1e-3)
    assert found.median_difference == pytest.approx(np.median(np.abs(mine - papers)), abs=1e-3)
    assert found.within_5 == np.mean(np.abs(mine - papers) <= 5)
    assert found.within_10 == np.mean(np.abs(mine - papers) <= 10)
    sides = mine.round(1) >= 95, papers >= 95
    assert found.same_side == np.mean(sides[0] == sides[1])
    assert found.kappa == pytest.approx(cohen_kappa_score(*sides))
    rows = defaultdict(list)
    for cell in CELLS:
        rows[cell.task, cell.bos, cell.layers].append((ours[cell], cell.ood))
    columns = [tuple(zip(*row, strict=True)) for row in rows.values()]
    ranks = [spearmanr(*both).statistic for both in columns if len(set(both[0])) > 1 < len(set(both[1]))]
    assert found.rank_correlation == pytest.approx(np.mean(ranks))


def test_whoever_says_fails_everywhere_has_the_base_rate_and_no_kappa() -> None:
    found = near(dict.fromkeys(CELLS, 10.0))
    fails = np.mean([cell.ood < 95 for cell in CELLS])
    assert fails > 0.7
    assert (found.same_side, found.base_rate, found.kappa) == pytest.approx((fails, fails, 0))
    assert np.isnan(found.rank_correlation)


def test_the_papers_own_numbers_are_at_no_distance() -> None:
    found = near({cell: cell.ood for cell in CELLS})
    assert (found.mean_difference, found.within_5, found.same_side, found.kappa) == (0, 1, 1, 1)
    assert found.rank_correlation == pytest.approx(1)


def test_the_last_step_and_the_range_over_seeds_are_of_all_seeds() -> None:
    cell = next(cell for cell in CELLS if cell.ood == 100)
    rows = [row_of(cell, 100.0, 90.0 + 5 * seed, seed, last_ood=50.0 - seed) for seed in range(LEAST_SEEDS)]
    (table,) = compare(rows, tables=[TABLE]).tables
    assert closeness(table.cells, "ood").mean_difference == 0
    assert closeness(table.cells, "ood").in_range == 1
    assert closeness(table.cells, "ood", "last").mean_difference == 50
    assert closeness(table.cells, "ood", "last").in_range == 0
    (two,) = compare(rows[1:], tables=[TABLE]).tables
    assert np.isnan(closeness(two.cells, "ood").in_range)


def test_nothing_trained_says_nothing() -> None:
    assert list(summarise(compare([], tables=[TABLE]))) == []
    assert np.isnan(near({}).mean_difference)


def test_the_summary_has_every_table_and_all_cells_once() -> None:
    comparison = compare([row_of(cell, cell.ind, cell.ood) for cell in CELLS])
    frame = summary_frame(comparison).set_index(["table", "side", "checkpoint"])
    assert frame.loc[("counting_results", "ood", "best"), "trained"] == 90
    assert frame.loc[("all, best seed", "ood", "best"), "mean_difference"] == 0
    assert frame.loc[("all, median", "ood", "last"), "cells"] == 170


def test_the_papers_medians_are_a_yardstick_beside_its_best_seeds() -> None:
    medians = {cell.experiment: cell for cell in paper_cells(f"{TABLE}_median")}
    pairs = [(cell, medians[cell.experiment]) for cell in CELLS if cell.experiment in medians]
    frame = summary_frame(compare([row_of(CELLS[0], 1.0, 2.0)])).set_index(["table", "side", "checkpoint"])
    for side in ("ind", "ood"):
        line = frame.loc[(f"{TABLE}, {PAPER_MEDIANS}", side, "best")]
        assert line.trained == len(pairs) == 80
        apart = [abs(getattr(best, side) - getattr(median, side)) for best, median in pairs]
        assert line.mean_difference == pytest.approx(np.mean(apart))
    assert (f"{TABLE}, {PAPER_MEDIANS}", "ood", "last") not in frame.index
    assert not any(table.startswith("bos,") for table, *_ in frame.index)
