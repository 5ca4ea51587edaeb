"""Linear probes: planted signals, nulls, and why rows and not tokens are held out."""

import numpy as np
import pytest

from probes.reading.linear_probe import balanced_accuracy, explained_variance, standardised

ROWS, PER_ROW = 60, 10


def tokens(seed: int = 0) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """A generator, the row of each token, and which tokens are fitted."""
    rows = np.repeat(np.arange(ROWS), PER_ROW)
    return np.random.default_rng(seed), rows, rows >= ROWS // 3


def test_a_planted_label_is_read_and_its_interval_is_narrow() -> None:
    generator, rows, fitted = tokens()
    labels = np.arange(ROWS * PER_ROW) % PER_ROW == 0
    x = generator.normal(size=(len(rows), 20))
    x[:, 3] += 8 * labels
    found = balanced_accuracy(standardised(x, fitted), labels, rows, fitted)
    assert found.value > 0.98
    assert found.low > 0.95


def test_nothing_is_read_from_noise() -> None:
    accuracies, shares, inside = [], [], 0
    for seed in range(20):
        generator, rows, fitted = tokens(seed)
        x = standardised(generator.normal(size=(len(rows), 20)), fitted)
        labels = generator.random(len(rows)) < 0.1
        found = balanced_accuracy(x, labels, rows, fitted, seed)
        accuracies.append(found.value)
        inside += found.low <= 0.5 <= found.high
        shares.append(explained_variance(x, generator.normal(size=ROWS)[rows], rows, fitted).value)
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.03)
    assert inside >= 15
    assert max(shares) < 0.05


def test_a_planted_number_is_read_as_well_as_the_noise_allows() -> None:
    """Signal and noise of equal variance: R² of a half."""
    generator, rows, fitted = tokens()
    target = generator.normal(size=len(rows))
    x = generator.normal(size=(len(rows), 5))
    x[:, 0] += target
    found = explained_variance(standardised(x, fitted), target, rows, fitted)
    assert found.low < 0.5 < found.high


def test_rows_known_by_heart_are_no_reading() -> None:
    """Features that name the row: split by tokens, any number that belongs to rows would seem to be read."""
    generator, rows, fitted = tokens()
    x = np.eye(ROWS)[rows] + 0.1 * generator.normal(size=(len(rows), ROWS))
    target = generator.normal(size=ROWS)[rows]
    assert explained_variance(standardised(x, fitted), target, rows, fitted).value < 0.1
    each, by_token = np.arange(len(rows)), generator.random(len(rows)) < 2 / 3
    assert explained_variance(standardised(x, by_token), target, each, by_token).value > 0.4


def test_rounding_is_not_read() -> None:
    """An exact value at the first token and rounding at the others, as where equal values are averaged."""
    _, rows, fitted = tokens()
    labels = np.arange(len(rows)) % PER_ROW == 0
    x = np.where(labels[:, None], 1.0, 1.0 + 1e-7) * np.ones((len(rows), 4))
    assert balanced_accuracy(standardised(x, fitted), labels, rows, fitted).value == 0.5
    assert explained_variance(standardised(x, fitted), 1.0 * rows, rows, fitted).value == 0


def test_wide_activations_are_read_through_their_principal_components() -> None:
    generator, rows, fitted = tokens()
    labels = np.arange(len(rows)) % PER_ROW == 0
    x = 0.1 * generator.normal(size=(len(rows), 600))
    x += 3 * labels[:, None] * generator.normal(size=600)
    features = standardised(x, fitted)
    assert features.shape == (len(rows), 64)
    assert balanced_accuracy(features, labels, rows, fitted).value > 0.99
