"""How well a linear probe reads something off activations, on rows that it has not seen.

Tokens of a row are alike, so rows and not tokens are held out, resampled, and split for choosing the ridge's penalty.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression

from probes.reading.pca import ROUNDING, pca_for
from probes.stats import Interval, bootstrap

WIDEST = 64  # principal components that a probe gets of a wider site
PENALTIES = np.logspace(-1, 6, 15)

Features = Float[np.ndarray, "token d"]
RowNumbers = Int[np.ndarray, "token"]
TokenMask = Bool[np.ndarray, "token"]
Weights = Float[np.ndarray, "sample token"]


def standardised(x: Features, fitted: TokenMask) -> Float[np.ndarray, "token _"]:
    """Columns of mean 0 and spread 1 over the fitted tokens, WIDEST at the most; those that only round are 0."""
    x = x.astype(np.float64)
    least = ROUNDING * np.sqrt((x[fitted] ** 2).mean())
    centred = x - x[fitted].mean(0)
    if min(x.shape[1], fitted.sum()) > WIDEST and centred[fitted].std() > least:
        centred = pca_for(centred[fitted], WIDEST).fit(centred[fitted]).transform(centred)
    spread = centred[fitted].std(0)
    return np.where(spread > least, centred / np.where(spread > least, spread, 1), 0.0)


def balanced_accuracy(x: Features, labels: TokenMask, rows: RowNumbers, fitted: TokenMask, seed: int = 0) -> Interval:
    """Mean share of right answers over both classes, of a logistic regression; 0.5 without anything to go by."""
    if not x.any():
        return Interval(0.5, 0.5, 0.5)
    classifier = LogisticRegression(class_weight="balanced", solver="newton-cholesky", max_iter=30, tol=1e-3)
    classifier.fit(x[fitted], labels[fitted])
    truth = labels[~fitted]
    right = classifier.predict(x[~fitted]) == truth

    def balanced(weights: Weights) -> Float[np.ndarray, "sample"]:
        of_first, of_others = (weights[:, which] @ right[which] / weights[:, which].sum(1) for which in (truth, ~truth))
        return (of_first + of_others) / 2

    return _over_rows(balanced, rows[~fitted], seed)


def explained_variance(
    x: Features, target: Float[np.ndarray, "token"], rows: RowNumbers, fitted: TokenMask, seed: int = 0
) -> Interval:
    """R² of a ridge regression, whose penalty is chosen on a third of the fitted rows."""
    if not x.any():
        return Interval(0.0, 0.0, 0.0)
    middle = target[fitted].mean()
    guess = middle + ridge(x, target - middle, rows, fitted)
    missed, spread = ((target - other)[~fitted] ** 2 for other in (guess, middle))
    return _over_rows(lambda weights: 1 - weights @ missed / (weights @ spread), rows[~fitted], seed)


def ridge(
    x: Features, target: Float[np.ndarray, "token"], rows: RowNumbers, fitted: TokenMask
) -> Float[np.ndarray, "token"]:
    """Predictions of a ridge regression for all tokens."""
    choosing = fitted & np.isin(rows, np.unique(rows[fitted])[::3])
    errors = ((_ridges(x, target, fitted & ~choosing)[choosing] - target[choosing, None]) ** 2).sum(0)
    return _ridges(x, target, fitted)[:, errors.argmin()]


def _ridges(x: Features, target: Float[np.ndarray, "token"], fitted: TokenMask) -> Float[np.ndarray, "token penalty"]:
    """Predictions for all tokens with each penalty, from one decomposition."""
    squares, axes = np.linalg.eigh(x[fitted].T @ x[fitted])
    turned = axes.T @ (x[fitted].T @ target[fitted])
    return x @ axes @ (turned[:, None] / (np.maximum(squares, 0)[:, None] + PENALTIES))


def _over_rows(statistic: Callable[[Weights], Float[np.ndarray, "sample"]], rows: RowNumbers, seed: int) -> Interval:
    """A statistic of weighted tokens, and what it lies between when their rows are drawn again."""
    names, index = np.unique(rows, return_inverse=True)
    (found,) = bootstrap(lambda weights: statistic(weights[:, index])[None], np.ones(len(names)), seed)
    return found
