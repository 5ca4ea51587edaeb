"""Linear probes: planted signals, nulls, and why rows and not tokens are held out."""

import numpy as np
import pytest

from probes.reading.linear_probe import (
    balanced_accuracy,
    better_guess_p,
    explained_variance,
    label_p,
    predict_numbers,
    right_labels,
    standardised,
)
from probes.stats import Interval

ROWS, PER_ROW = 60, 10


def tokens(seed: int = 0) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """A generator, the row of each token, and which tokens are fitted."""
    rows = np.repeat(np.arange(ROWS), PER_ROW)
    return np.random.default_rng(seed), rows, rows >= ROWS // 3


def read_label(
    x: np.ndarray, labels: np.ndarray, rows: np.ndarray, fitted: np.ndarray, seed: int = 0
) -> tuple[Interval, float]:
    """Balanced accuracy on held-out rows, and how often shuffled labels have as much."""
    right = right_labels(x, labels, fitted)
    there = None if right is None else right[~fitted]
    held_out = labels[~fitted], rows[~fitted]
    return balanced_accuracy(there, *held_out, seed), label_p(there, *held_out, seed)


def read_number(x: np.ndarray, target: np.ndarray, rows: np.ndarray, fitted: np.ndarray) -> Interval:
    """R² on held-out rows."""
    guess = predict_numbers(x, target, rows, fitted)
    return explained_variance(guess[~fitted], target[~fitted], target[fitted].mean(), rows[~fitted])


def test_a_planted_label_is_read_and_its_interval_is_narrow() -> None:
    generator, rows, fitted = tokens()
    labels = np.arange(ROWS * PER_ROW) % PER_ROW == 0
    x = generator.normal(size=(len(rows), 20))
    x[:, 3] += 8 * labels
    found, p = read_label(standardised(x, fitted), labels, rows, fitted)
    assert found.value > 0.98
    assert 0.8 < found.low < 0.97  # twenty rows that are all right leave some doubt
    assert p == 0.001


def test_nothing_is_read_from_noise() -> None:
    accuracies, shares, inside = [], [], 0
    for seed in range(20):
        generator, rows, fitted = tokens(seed)
        x = standardised(generator.normal(size=(len(rows), 20)), fitted)
        labels = generator.random(len(rows)) < 0.1
        found, _ = read_label(x, labels, rows, fitted, seed)
        accuracies.append(found.value)
        inside += found.low <= 0.5 <= found.high
        shares.append(read_number(x, generator.normal(size=ROWS)[rows], rows, fitted).value)
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.03)
    assert inside >= 15
    assert max(shares) < 0.05


def test_a_planted_number_is_read_as_well_as_the_noise_allows() -> None:
    """Signal and noise of equal variance: R² of a half."""
    generator, rows, fitted = tokens()
    target = generator.normal(size=len(rows))
    x = generator.normal(size=(len(rows), 5))
    x[:, 0] += target
    found = read_number(standardised(x, fitted), target, rows, fitted)
    assert found.low < 0.5 < found.high


def test_rows_known_by_heart_are_no_reading() -> None:
    """Features that name the row: split by tokens, any number that belongs to rows would seem to be read."""
    generator, rows, fitted = tokens()
    x = np.eye(ROWS)[rows] + 0.1 * generator.normal(size=(len(rows), ROWS))
    target = generator.normal(size=ROWS)[rows]
    assert read_number(standardised(x, fitted), target, rows, fitted).value < 0.1
    each, by_token = np.arange(len(rows)), generator.random(len(rows)) < 2 / 3
    assert read_number(standardised(x, by_token), target, each, by_token).value > 0.4


def test_rounding_is_not_read() -> None:
    """An exact value at the first token and rounding at the others, as where equal values are averaged."""
    _, rows, fitted = tokens()
    labels = np.arange(len(rows)) % PER_ROW == 0
    x = np.where(labels[:, None], 1.0, 1.0 + 1e-7) * np.ones((len(rows), 4))
    assert read_label(standardised(x, fitted), labels, rows, fitted) == (Interval(0.5, 0.5, 0.5), 1.0)
    assert read_number(standardised(x, fitted), 1.0 * rows, rows, fitted).value == pytest.approx(0)


def test_wide_activations_are_read_through_their_principal_components() -> None:
    generator, rows, fitted = tokens()
    labels = np.arange(len(rows)) % PER_ROW == 0
    x = 0.1 * generator.normal(size=(len(rows), 600))
    x += 3 * labels[:, None] * generator.normal(size=600)
    features = standardised(x, fitted)
    assert features.shape == (len(rows), 64)
    assert read_label(features, labels, rows, fitted)[0].value > 0.99


def test_shuffled_labels_and_guesses_no_better_than_others_alarm_at_the_nominal_rate() -> None:
    labels = np.arange(ROWS * PER_ROW) % PER_ROW == 0
    alarms = np.zeros(2)
    for seed in range(200):
        generator, rows, fitted = tokens(seed)
        said = generator.random(len(rows)) < generator.random(len(rows)) * 0.4
        at = rows[~fitted]
        one, other, truth = generator.normal(size=(3, len(at)))
        alarms += [
            label_p((said == labels)[~fitted], labels[~fitted], at, seed) <= 0.05,
            better_guess_p(one, other, truth, at, seed) <= 0.05,
        ]
    assert (alarms <= 20).all()  # of 200 at 0.05: more in 1 of 300 cases
    assert (alarms >= 2).all()
