"""Statistics over many runs, with bootstrap intervals over seeds: a seed is resampled together with all its runs.

A statistic takes the table of runs and many bootstrap samples at once. A sample is a row of weights, which say how
often each run was drawn; the statistic returns one number per sample.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from probes.stats import Interval, bootstrap
from probes.studies.study import Series

Weights = Float[np.ndarray, "sample run"]
Numbers = Float[np.ndarray, "sample"]
Statistic = Callable[[pd.DataFrame, Weights], Numbers]


def over_seeds(table: pd.DataFrame, statistic: Statistic, seed: int = 0) -> Interval | None:
    """A statistic of the runs with its bootstrap interval over seeds; None if it cannot be computed.

    Runs of one seed are resampled together: they begin with related weights and see the same rows.
    """
    codes, seeds = pd.factorize(table["seed"])
    if len(seeds) < 2 or not np.isfinite(statistic(table, np.ones((1, len(table))))).all():
        return None
    (interval,) = bootstrap(
        lambda drawn: statistic(table, drawn[:, codes].astype(float))[None], np.ones(len(seeds)), seed
    )
    return interval if np.isfinite(list(vars(interval).values())).all() else None


def mean_of(column: str) -> Statistic:
    """The mean of a column, over the runs that have a value there."""
    return lambda table, weights: weighted_mean(table[column].to_numpy(float), weights)


def mean_gap(column: str, other: str) -> Statistic:
    """The mean of a column minus another column of the same run."""
    return lambda table, weights: weighted_mean((table[column] - table[other]).to_numpy(float), weights)


def weighted_mean(
    values: Float[np.ndarray, "run"], weights: Weights, mask: Bool[np.ndarray, "run"] | None = None
) -> Numbers:
    """The mean over the runs in the mask that have a value; NaN in samples that draw none of them."""
    counts = np.isfinite(values) if mask is None else np.isfinite(values) & mask
    with np.errstate(invalid="ignore", divide="ignore"):
        return weights[:, counts] @ values[counts] / weights[:, counts].sum(1)


def gaps(
    table: pd.DataFrame, weights: Weights, column: str, arm: Mapping[str, object], other: Mapping[str, object], by: str
) -> Float[np.ndarray, "group sample"]:
    """The mean of a column in one arm minus that in another, for each value of `by`; NaN where a group lacks an arm.

    An arm is all runs that have these values in these columns.
    """
    values = table[column].to_numpy(float)
    groups = [table[by].to_numpy() == value for value in table[by].unique()]
    masks = [has(table, values_of_arm) for values_of_arm in (arm, other)]
    means = [[weighted_mean(values, weights, group & mask) for mask in masks] for group in groups]
    return np.array([mean - other_mean for mean, other_mean in means]).reshape(len(groups), len(weights))


def difference(column: str, arm: Mapping[str, object], other: Mapping[str, object], by: str) -> Statistic:
    """The mean of `gaps` over the groups that have both arms; NaN if none has."""

    def statistic(table: pd.DataFrame, weights: Weights) -> Numbers:
        by_group = np.ma.masked_invalid(gaps(table, weights, column, arm, other, by))
        return np.ma.filled(by_group.mean(0), np.nan) if len(by_group) else np.full(len(weights), np.nan)

    return statistic


def has(table: pd.DataFrame, values: Mapping[str, object]) -> Bool[np.ndarray, "run"]:
    """Which runs have these values in these columns."""
    return np.logical_and.reduce([(table[name] == value).to_numpy() for name, value in values.items()])


def select(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The runs that have these values in these columns."""
    return table[has(table, values)]


def series_by(
    label: str, table: pd.DataFrame, by: str, column: str, look: Literal["line", "points"] = "line"
) -> Series:
    """The mean of a column with its interval, for each value of `by`; values with fewer than two seeds are left out."""
    means = {key: over_seeds(runs, mean_of(column)) for key, runs in table.groupby(by)}
    points = {key: mean for key, mean in means.items() if mean is not None}
    x = tuple(key if isinstance(key, str) else float(key) for key in points)
    return Series(label, x, tuple(points.values()), look)


def rank_correlation(column: str, other: str, given: tuple[str, ...] = (), within: str | None = None) -> Statistic:
    """Spearman's correlation of two columns; partial, of the ranks' residuals, if there are columns `given`.

    With `within`, runs are ranked inside each group that shares this column, and ranks are divided by the group's size:
    differences between groups then have no effect.
    """
    columns = [column, other, *given]

    def statistic(table: pd.DataFrame, weights: Weights) -> Numbers:
        values = table[columns].to_numpy(float)
        groups = np.zeros(len(table), int) if within is None else pd.factorize(table[within])[0]
        is_complete = np.isfinite(values).all(1)
        samples = (np.repeat(np.arange(len(table)), row.astype(int) * is_complete) for row in weights)
        return np.array([_correlate_ranks(values[runs], groups[runs]) for runs in samples])

    return statistic


def _correlate_ranks(values: Float[np.ndarray, "run column"], groups: np.ndarray) -> float:
    """The partial rank correlation of the first two columns, given the others; NaN if one of them is constant."""
    parts = [values[groups == group] for group in np.unique(groups)]
    ranks = [rankdata(part, axis=0) / len(part) for part in parts]
    if not ranks:
        return np.nan
    centred = np.concatenate([part - part.mean(0) for part in ranks])
    x, y, z = centred[:, 0], centred[:, 1], centred[:, 2:]
    if z.shape[1]:
        x, y = (target - z @ np.linalg.lstsq(z, target, rcond=None)[0] for target in (x, y))
    norm = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / norm) if norm > 1e-12 else np.nan


def left_out_predictions(
    table: pd.DataFrame, target: str, features: tuple[str, ...], within: str
) -> Float[np.ndarray, "run"]:
    """For each run, its target as predicted by least squares that were fitted to the runs of all other seeds.

    Each group of runs that share `within` has an intercept of its own.
    """
    design = np.column_stack(
        [pd.get_dummies(table[within]).to_numpy(float), *(table[feature].to_numpy(float) for feature in features)]
    )
    model = LinearRegression(fit_intercept=False)
    return cross_val_predict(model, design, table[target].to_numpy(float), groups=table["seed"], cv=LeaveOneGroupOut())
