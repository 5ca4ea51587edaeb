"""Numbers over many runs, with intervals over seeds: whole seeds are drawn again, with all their runs."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from probes.stats import Interval, bootstrap
from probes.studies.study import Series

Statistic = Callable[[pd.DataFrame], float]


def over_seeds(table: pd.DataFrame, statistic: Statistic, seed: int = 0) -> Interval | None:
    """A statistic of the runs, and what it lies between when seeds are drawn again; None if it cannot be computed.

    Runs of one seed go together: they begin with related weights and see the same rows.
    """
    groups = [np.asarray(index) for index in table.groupby("seed").indices.values()]
    if len(groups) < 2 or not np.isfinite(statistic(table)):
        return None

    def of_weights(weights: Float[np.ndarray, "sample seed"]) -> Float[np.ndarray, "one sample"]:
        values = [
            statistic(
                table.iloc[np.concatenate([np.tile(group, int(w)) for group, w in zip(groups, row, strict=True)])]
            )
            for row in weights
        ]
        return np.array(values)[None]

    (interval,) = bootstrap(of_weights, np.ones(len(groups)), seed)
    return interval if np.isfinite([interval.low, interval.high]).all() else None


def mean_of(column: str) -> Statistic:
    """The mean of a column, over runs that have it."""
    return lambda table: float(np.nanmean(table[column])) if table[column].notna().any() else np.nan


def difference(column: str, one: dict[str, object], other: dict[str, object], within: str | None = None) -> Statistic:
    """How much larger the mean of a column is in one arm than in another; the mean over `within`, where that is given.

    An arm is the runs with these values.
    """

    def statistic(table: pd.DataFrame) -> float:
        parts = [table] if within is None else [part for _, part in table.groupby(within)]
        gaps = [select(part, **one)[column].mean() - select(part, **other)[column].mean() for part in parts]
        return float(np.nanmean(gaps)) if np.isfinite(gaps).any() else np.nan

    return statistic


def select(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The runs that have these values."""
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def series_by(
    label: str, table: pd.DataFrame, by: str, column: str, look: Literal["line", "points"] = "line"
) -> Series:
    """The mean of a column with its interval, for each value of another; values with too few runs are left out."""
    found = {key: over_seeds(part, mean_of(column)) for key, part in table.groupby(by)}
    kept = {key: interval for key, interval in found.items() if interval is not None}
    return Series(label, tuple(kept), tuple(kept.values()), look)


def rank_correlation(
    table: pd.DataFrame, one: str, other: str, given: tuple[str, ...] = (), within: tuple[str, ...] = ()
) -> float:
    """Spearman's correlation of two columns, given others: of what those leave of the ranks (partial correlation).

    Ranks are those inside each group of runs that share the columns `within`, divided by the group's size: what only
    differs between groups then counts for nothing.
    """
    columns = [one, other, *given]
    table = table.dropna(subset=columns)
    groups = [part for _, part in table.groupby(list(within))] if within else [table]
    parts = [
        np.stack([rankdata(part[column]) / len(part) for column in columns], 1) for part in groups if len(part) > 1
    ]
    if not parts:
        return np.nan
    centred = np.concatenate([part - part.mean(0) for part in parts])
    x, y, z = centred[:, 0], centred[:, 1], centred[:, 2:]
    if given:
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
