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
SHUFFLES = 999  # of the null

Features = Float[np.ndarray, "token d"]
Numbers = Float[np.ndarray, "token"]
RowNumbers = Int[np.ndarray, "token"]
TokenMask = Bool[np.ndarray, "token"]
Weights = Float[np.ndarray, "sample row"]
TokenWeights = Float[np.ndarray, "sample token"]
Counts = Float[np.ndarray, "class row"]


def standardised(x: Features, fitted: TokenMask) -> Float[np.ndarray, "token _"]:
    """Columns of mean 0 and spread 1 over the fitted tokens, WIDEST at the most; those that only round are 0."""
    x = x.astype(np.float64)
    least = ROUNDING * np.sqrt((x[fitted] ** 2).mean())
    centred = x - x[fitted].mean(0)
    if min(x.shape[1], fitted.sum()) > WIDEST and centred[fitted].std() > least:
        centred = pca_for(centred[fitted], WIDEST).fit(centred[fitted]).transform(centred)
    spread = centred[fitted].std(0)
    return np.where(spread > least, centred / np.where(spread > least, spread, 1), 0.0)


def right_labels(x: Features, labels: TokenMask, fitted: TokenMask) -> TokenMask | None:
    """Which tokens a logistic regression of the fitted ones gets right; None without anything to go by."""
    if not x.any():
        return None
    classifier = LogisticRegression(class_weight="balanced", solver="newton-cholesky", max_iter=30, tol=1e-3)
    classifier.fit(x[fitted], labels[fitted])
    return np.asarray(classifier.predict(x) == labels)


def balanced_accuracy(right: TokenMask | None, labels: TokenMask, rows: RowNumbers, seed: int = 0) -> Interval:
    """Mean share of right answers over both classes, 0.5 without anything to go by; of the tokens given.

    Its interval comes from drawing rows again, and with them one row that is right throughout and one that is wrong
    throughout: so it has a width where all rows are alike.
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
    """How often labels that are shuffled within each row agree as well with what was predicted."""
    if right is None:
        return 1.0
    said = right == labels  # True where the probe says "first"
    observed = _hit_rates(said, labels[None])[0]
    order = np.random.default_rng(seed).random((SHUFFLES, len(rows)))
    shuffled = np.empty((SHUFFLES, len(rows)), dtype=bool)
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        shuffled[:, at] = labels[at][order[:, at].argsort(1)]
    return float((1 + (_hit_rates(said, shuffled) >= observed - 1e-9).sum()) / (1 + SHUFFLES))


def _hit_rates(said: TokenMask, labels: Bool[np.ndarray, "sample token"]) -> Float[np.ndarray, "sample"]:
    """Balanced accuracy of the same predictions against many sets of labels."""
    first = labels.astype(float)
    return (first @ said / first.sum(1) + (1 - first) @ ~said / (1 - first).sum(1)) / 2


def guesses(x: Features, target: Numbers, rows: RowNumbers, fitted: TokenMask) -> Numbers:
    """Predictions of a ridge regression, whose penalty is chosen on a third of the fitted rows."""
    middle = target[fitted].mean()
    return middle + (ridge(x, target - middle, rows, fitted) if x.any() else 0 * target)


def explained_variance(
    guess: Numbers,
    target: Numbers,
    middle: float,
    rows: RowNumbers,
    seed: int = 0,
) -> Interval:
    """R² of guesses, against always guessing the middle; of the tokens given."""
    missed, spread = (target - guess) ** 2, (target - middle) ** 2
    return _over_rows(lambda weights: 1 - weights @ missed / (weights @ spread), rows, seed)


def better_guess_p(
    guess: Numbers,
    other: Numbers,
    target: Numbers,
    rows: RowNumbers,
    seed: int = 0,
) -> float:
    """How often guesses would seem to miss by less than others, were each row as likely to go either way."""
    _, index = np.unique(rows, return_inverse=True)
    gains = np.bincount(index, (target - other) ** 2 - (target - guess) ** 2)
    signs = np.random.default_rng(seed).choice([-1, 1], size=(SHUFFLES, len(gains)))
    observed = gains.sum()
    return float((1 + (signs @ gains >= observed - 1e-9 * np.abs(gains).sum()).sum()) / (1 + SHUFFLES))


def ridge(x: Features, target: Numbers, rows: RowNumbers, fitted: TokenMask) -> Numbers:
    """Predictions of a ridge regression for all tokens."""
    choosing = fitted & np.isin(rows, np.unique(rows[fitted])[::3])
    errors = ((_ridges(x, target, fitted & ~choosing)[choosing] - target[choosing, None]) ** 2).sum(0)
    return _ridges(x, target, fitted)[:, errors.argmin()]


def _ridges(x: Features, target: Numbers, fitted: TokenMask) -> Float[np.ndarray, "token penalty"]:
    """Predictions for all tokens with each penalty, from one decomposition."""
    squares, axes = np.linalg.eigh(x[fitted].T @ x[fitted])
    turned = axes.T @ (x[fitted].T @ target[fitted])
    return x @ axes @ (turned[:, None] / (np.maximum(squares, 0)[:, None] + PENALTIES))


def _over_rows(
    statistic: Callable[[TokenWeights], Float[np.ndarray, "sample"]], rows: RowNumbers, seed: int
) -> Interval:
    """A statistic of weighted tokens, and what it lies between when their rows are drawn again."""
    names, index = np.unique(rows, return_inverse=True)
    (found,) = bootstrap(lambda weights: statistic(weights[:, index])[None], np.ones(len(names)), seed)
    return found
