"""Numbers over many runs: intervals over seeds, correlations inside groups, predictions that never see their target."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from probes.studies.analysis import (
    Statistic,
    difference,
    left_out_predictions,
    mean_gap,
    mean_of,
    over_seeds,
    rank_correlation,
    select,
    series_by,
)


def make_table(seeds: int = 12, noise: float = 1.0) -> pd.DataFrame:
    """Two groups; y follows x inside them, and z follows nothing."""
    generator = np.random.default_rng(0)
    rows = [
        {"seed": seed, "group": group, "x": x, "y": 3 * x + 10 * (group == "b") + noise * generator.normal()}
        for seed in range(seeds)
        for group in "ab"
        for x in [generator.normal()]
    ]
    return pd.DataFrame(rows).assign(z=generator.normal(size=2 * seeds))


def once(table: pd.DataFrame, statistic: Statistic) -> float:
    """The statistic of the runs as they are."""
    return float(statistic(table, np.ones((1, len(table))))[0])


def test_seeds_are_drawn_again_whole() -> None:
    table = pd.DataFrame({"seed": np.repeat(range(8), 50), "y": np.repeat(np.arange(8.0), 50)})
    interval = over_seeds(table, mean_of("y"))
    assert interval.value == pytest.approx(3.5)
    assert interval.low < 2.3
    assert interval.high > 4.7  # as wide as that of 8 numbers, though there are 400


def test_one_seed_says_nothing_of_its_uncertainty() -> None:
    assert over_seeds(pd.DataFrame({"seed": [1, 1], "y": [1.0, 2.0]}), mean_of("y")) is None
    assert over_seeds(pd.DataFrame({"seed": [1, 2], "y": [np.nan, np.nan]}), mean_of("y")) is None


def test_a_difference_is_that_of_means_within_groups() -> None:
    table = pd.DataFrame({"base": [4, 4, 5, 5, 6], "arm": ["x", "y"] * 2 + ["x"], "ood": [90.0, 10.0, 50.0, 40.0, 7.0]})
    weights = np.array([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]])
    found = difference("ood", {"arm": "x"}, {"arm": "y"}, by="base")(table, weights)
    np.testing.assert_allclose(found, [45, 80, np.nan])
    assert np.isnan(difference("ood", {"arm": "x"}, {"arm": "none"}, by="base")(table, weights)).all()


def test_weights_are_how_often_a_run_was_drawn() -> None:
    table = pd.DataFrame({"y": [1.0, 2.0, 6.0, np.nan], "x": [1.0, 2.0, 3.0, 4.0]})
    weights = np.array([[1.0, 1, 1, 1], [0, 3, 1, 5], [0, 0, 0, 1]])
    np.testing.assert_allclose(mean_of("y")(table, weights), [3, 3, np.nan])
    np.testing.assert_allclose(mean_gap("y", "x")(table, weights), [1, 0.75, np.nan])


def test_rank_correlation_is_spearmans() -> None:
    table = make_table()
    expected = spearmanr(table["x"], table["y"]).statistic
    assert once(table, rank_correlation("x", "y")) == pytest.approx(expected)


def test_what_differs_between_groups_only_counts_for_nothing() -> None:
    table = make_table(40).assign(only_group=lambda one: (one["group"] == "b") + 0.01 * one["z"])
    assert once(table, rank_correlation("only_group", "y")) > 0.5
    assert abs(once(table, rank_correlation("only_group", "y", within="group"))) < 0.3


def test_a_partial_correlation_takes_out_what_is_given() -> None:
    table = make_table(200).assign(echo=lambda one: one["x"] + 0.3 * one["z"])
    assert once(table, rank_correlation("echo", "y", within="group")) > 0.6
    assert abs(once(table, rank_correlation("echo", "y", ("x",), "group"))) < 0.15
    assert once(table, rank_correlation("x", "y", ("echo",), "group")) > 0.3


def test_a_column_without_spread_has_no_correlation() -> None:
    assert np.isnan(once(make_table().assign(flat=1.0), rank_correlation("flat", "y")))


def test_predictions_follow_the_others_and_never_the_target_itself() -> None:
    table = make_table(noise=0.0)
    predicted = left_out_predictions(table, "y", ("x",), "group")
    np.testing.assert_allclose(predicted, table["y"], atol=1e-8)
    changed = table.assign(y=table["y"].where(table["seed"] != 3, 1000.0))
    again = left_out_predictions(changed, "y", ("x",), "group")
    seed = (table["seed"] == 3).to_numpy()
    np.testing.assert_allclose(again[seed], predicted[seed], atol=1e-8)
    assert np.abs(again[~seed] - predicted[~seed]).max() > 1


def test_values_with_too_few_seeds_are_left_out_of_a_series() -> None:
    table = pd.DataFrame({"seed": [1, 2, 1], "base": [4, 4, 5], "ood": [1.0, 3.0, 2.0]})
    series = series_by("all", table, "base", "ood")
    assert series.x == (4,)
    assert series.y[0].value == 2.0
    assert len(select(table, base=5)) == 1
