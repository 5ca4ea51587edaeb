"""Numbers over many runs, with intervals over seeds: whole seeds are drawn again, with all their runs.

A statistic takes the table of runs and many sets of weights, which say how often each run was drawn; it gives a number
for each set.
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
    """A statistic of the runs, and what it lies between when seeds are drawn again; None if it cannot be computed.

    Runs of one seed go together: they begin with related weights and see the same rows.
    """
    codes, seeds = pd.factorize(table["seed"])
    if len(seeds) < 2:
        return None
    (interval,) = bootstrap(
        lambda drawn: statistic(table, drawn[:, codes].astype(float))[None], np.ones(len(seeds)), seed
    )
    return interval if np.isfinite(list(vars(interval).values())).all() else None


def mean_of(column: str) -> Statistic:
    """The mean of a column, over runs that have it."""
    return lambda table, weights: weighted_mean(table[column].to_numpy(float), weights)


def mean_gap(one: str, other: str) -> Statistic:
    """By how much the first of two columns is larger, on average."""
    return lambda table, weights: weighted_mean((table[one] - table[other]).to_numpy(float), weights)


def weighted_mean(
    values: Float[np.ndarray, "run"], weights: Weights, chosen: Bool[np.ndarray, "run"] | None = None
) -> Numbers:
    """The mean over the chosen runs that have a value; NaN where none is drawn."""
    there = np.isfinite(values) if chosen is None else np.isfinite(values) & chosen
    with np.errstate(invalid="ignore", divide="ignore"):
        return weights[:, there] @ values[there] / weights[:, there].sum(1)


def gaps(
    table: pd.DataFrame, weights: Weights, column: str, one: Mapping[str, object], other: Mapping[str, object], by: str
) -> Float[np.ndarray, "group sample"]:
    """How much larger the mean of a column is in one arm than in another, for each value of `by`.

    An arm is the runs with these values; NaN where a group lacks an arm.
    """
    values = table[column].to_numpy(float)
    groups = [table[by].to_numpy() == value for value in table[by].unique()]
    arms = [has(table, arm) for arm in (one, other)]
    means = [[weighted_mean(values, weights, group & arm) for arm in arms] for group in groups]
    return np.array([first - second for first, second in means]).reshape(len(groups), len(weights))


def difference(column: str, one: Mapping[str, object], other: Mapping[str, object], by: str) -> Statistic:
    """The mean of `gaps` over all groups that have both arms; NaN where none has."""

    def statistic(table: pd.DataFrame, weights: Weights) -> Numbers:
        found = np.ma.masked_invalid(gaps(table, weights, column, one, other, by))
        return np.ma.filled(found.mean(0), np.nan) if len(found) else np.full(len(weights), np.nan)

    return statistic


def has(table: pd.DataFrame, values: Mapping[str, object]) -> Bool[np.ndarray, "run"]:
    """Which runs have these values."""
    return np.logical_and.reduce([(table[name] == value).to_numpy() for name, value in values.items()])


def select(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The runs that have these values."""
    return table[has(table, values)]


def series_by(
    label: str, table: pd.DataFrame, by: str, column: str, look: Literal["line", "points"] = "line"
) -> Series:
    """The mean of a column with its interval, for each value of another; values with too few runs are left out."""
    found = {key: over_seeds(part, mean_of(column)) for key, part in table.groupby(by)}
    kept = {key: interval for key, interval in found.items() if interval is not None}
    return Series(label, tuple(kept), tuple(kept.values()), look)


def rank_correlation(one: str, other: str, given: tuple[str, ...] = (), within: str | None = None) -> Statistic:
    """Spearman's correlation of two columns, given others: of what those leave of the ranks (partial correlation).

    With `within`, ranks are those inside each group of runs that share this column, divided by the group's size: what
    only differs between groups then counts for nothing.
    """
    columns = [one, other, *given]

    def statistic(table: pd.DataFrame, weights: Weights) -> Numbers:
        values = table[columns].to_numpy(float)
        groups = np.zeros(len(table), int) if within is None else pd.factorize(table[within])[0]
        there = np.isfinite(values).all(1)
        drawn = (np.repeat(np.arange(len(table)), row.astype(int) * there) for row in weights)
        return np.array([_correlate_ranks(values[runs], groups[runs]) for runs in drawn])

    return statistic


def _correlate_ranks(values: Float[np.ndarray, "run column"], groups: np.ndarray) -> float:
    """The partial correlation of the first two columns, given the others."""
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
    """For each run, what least squares on the runs of all other seeds predict: its own target never enters.

    Each group of runs that share `within` has an intercept of its own.
    """
    design = np.column_stack(
        [pd.get_dummies(table[within]).to_numpy(float), *(table[feature].to_numpy(float) for feature in features)]
    )
    model = LinearRegression(fit_intercept=False)
    return cross_val_predict(model, design, table[target].to_numpy(float), groups=table["seed"], cv=LeaveOneGroupOut())
