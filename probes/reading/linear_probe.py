"""Linear probes of activations, scored on rows that they were not fitted on.

The tokens of a row are not independent. So whole rows are held out, resampled, and set aside for choosing the ridge's
penalty.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression

from probes.reading.pca import ROUNDING, pca_for
from probes.stats import Interval, bootstrap

WIDEST = 64  # a wider site is reduced to so many principal components
PENALTIES = np.logspace(-1, 6, 15)
SHUFFLES = 999  # of labels, for a null distribution

Features = Float[np.ndarray, "token d"]
Numbers = Float[np.ndarray, "token"]
RowNumbers = Int[np.ndarray, "token"]
TokenMask = Bool[np.ndarray, "token"]
Weights = Float[np.ndarray, "sample row"]
TokenWeights = Float[np.ndarray, "sample token"]
Counts = Float[np.ndarray, "class row"]


def standardised(x: Features, fitted: TokenMask) -> Float[np.ndarray, "token _"]:
    """The features with mean 0 and std 1 over the fitted tokens, at most WIDEST columns; constant columns become 0."""
    x = x.astype(np.float64)
    least = ROUNDING * np.sqrt((x[fitted] ** 2).mean())
    centred = x - x[fitted].mean(0)
    if min(x.shape[1], fitted.sum()) > WIDEST and centred[fitted].std() > least:
        centred = pca_for(centred[fitted], WIDEST).fit(centred[fitted]).transform(centred)
    spread = centred[fitted].std(0)
    return np.where(spread > least, centred / np.where(spread > least, spread, 1), 0.0)


def right_labels(x: Features, labels: TokenMask, fitted: TokenMask) -> TokenMask | None:
    """True at tokens that a logistic regression on the fitted ones classifies right; None if all features are 0."""
    if not x.any():
        return None
    classifier = LogisticRegression(class_weight="balanced", solver="newton-cholesky", max_iter=30, tol=1e-3)
    classifier.fit(x[fitted], labels[fitted])
    return np.asarray(classifier.predict(x) == labels)


def balanced_accuracy(right: TokenMask | None, labels: TokenMask, rows: RowNumbers, seed: int = 0) -> Interval:
    """The mean over both classes of the share of right answers; 0.5 if `right` is None.

    Its interval comes from resampling rows, together with one row that is all right and one that is all wrong, so that
    it has a width even if all rows are equal.
    """
    if right is None:
        return Interval(0.5, 0.5, 0.5)
    names, index = np.unique(rows, return_inverse=True)
    hits = np.array([np.bincount(index, right & (labels == of_class), len(names)) for of_class in (True, False)])
    sizes = np.array([np.bincount(index, labels == of_class, len(names)) for of_class in (True, False)])
    typical = sizes.mean(1)

    def balanced(hits: Counts, sizes: Counts, weights: Weights) -> Float[np.ndarray, "sample"]:
        return ((hits @ weights.T) / (sizes @ weights.T)).mean(0)

    all_hits, all_sizes = np.column_stack([hits, typical, 0 * typical]), np.column_stack([sizes, typical, typical])
    (drawn,) = bootstrap(lambda weights: balanced(all_hits, all_sizes, weights)[None], np.ones(len(names) + 2), seed)
    value = float(balanced(hits, sizes, np.ones((1, len(names))))[0])
    return Interval(value, min(value, drawn.low), max(value, drawn.high))


def label_p(right: TokenMask | None, labels: TokenMask, rows: RowNumbers, seed: int = 0) -> float:
    """The p-value of a balanced accuracy: how often labels shuffled within rows agree as well with the predictions."""
    if right is None:
        return 1.0
    predicted = right == labels  # True at tokens that the probe calls first
    observed = _hit_rates(predicted, labels[None])[0]
    order = np.random.default_rng(seed).random((SHUFFLES, len(rows)))
    shuffled = np.empty((SHUFFLES, len(rows)), dtype=bool)
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        shuffled[:, at] = labels[at][order[:, at].argsort(1)]
    return float((1 + (_hit_rates(predicted, shuffled) >= observed - 1e-9).sum()) / (1 + SHUFFLES))


def _hit_rates(predicted: TokenMask, labels: Bool[np.ndarray, "sample token"]) -> Float[np.ndarray, "sample"]:
    """The balanced accuracy of the same predictions for each of many sets of labels."""
    first = labels.astype(float)
    return (first @ predicted / first.sum(1) + (1 - first) @ ~predicted / (1 - first).sum(1)) / 2


def predict_numbers(x: Features, target: Numbers, rows: RowNumbers, fitted: TokenMask) -> Numbers:
    """Predictions of a ridge regression for all tokens; the mean of the fitted targets if all features are 0."""
    middle = target[fitted].mean()
    return middle + (ridge(x, target - middle, rows, fitted) if x.any() else 0 * target)


def explained_variance(
    guess: Numbers,
    target: Numbers,
    middle: float,
    rows: RowNumbers,
    seed: int = 0,
) -> Interval:
    """R² of the guesses, relative to always guessing `middle`, with an interval over rows."""
    missed, spread = (target - guess) ** 2, (target - middle) ** 2
    return _over_rows(lambda weights: 1 - weights @ missed / (weights @ spread), rows, seed)


def better_guess_p(
    guess: Numbers,
    other: Numbers,
    target: Numbers,
    rows: RowNumbers,
    seed: int = 0,
) -> float:
    """The p-value that guesses have smaller squared errors than others, by flipping the signs of the rows' gains."""
    _, index = np.unique(rows, return_inverse=True)
    gains = np.bincount(index, (target - other) ** 2 - (target - guess) ** 2)
    signs = np.random.default_rng(seed).choice([-1, 1], size=(SHUFFLES, len(gains)))
    observed = gains.sum()
    return float((1 + (signs @ gains >= observed - 1e-9 * np.abs(gains).sum()).sum()) / (1 + SHUFFLES))


def ridge(x: Features, target: Numbers, rows: RowNumbers, fitted: TokenMask) -> Numbers:
    """Predictions of a ridge regression for all tokens; its penalty is chosen on a third of the fitted rows."""
    choosing = fitted & np.isin(rows, np.unique(rows[fitted])[::3])
    errors = ((_ridges(x, target, fitted & ~choosing)[choosing] - target[choosing, None]) ** 2).sum(0)
    return _ridges(x, target, fitted)[:, errors.argmin()]


def _ridges(x: Features, target: Numbers, fitted: TokenMask) -> Float[np.ndarray, "token penalty"]:
    """Predictions for all tokens with each penalty, from one eigendecomposition."""
    squares, axes = np.linalg.eigh(x[fitted].T @ x[fitted])
    rotated = axes.T @ (x[fitted].T @ target[fitted])
    return x @ axes @ (rotated[:, None] / (np.maximum(squares, 0)[:, None] + PENALTIES))


def _over_rows(
    statistic: Callable[[TokenWeights], Float[np.ndarray, "sample"]], rows: RowNumbers, seed: int
) -> Interval:
    """A statistic of weighted tokens with an interval from resampling their rows."""
    names, index = np.unique(rows, return_inverse=True)
    (interval,) = bootstrap(lambda weights: statistic(weights[:, index])[None], np.ones(len(names)), seed)
    return interval
