"""Rises: curves that rise, walks that only seem to, and windows that no scale can move."""

import numpy as np
import pytest

from probes.over_training.rises import change_point, find_rise, rise_p, window
from probes.stats import ALPHA

STEPS = np.array([0, 1, 3, 10, 30, 100, 300, 1000])


def sigmoid(middle: float, width: float = 1.0, snapshots: int = 17) -> np.ndarray:
    return 1 / (1 + np.exp((middle - np.arange(snapshots)) / width))


@pytest.mark.parametrize("middle", [5, 8, 12])
def test_a_gradual_rise_is_sure_with_noise_or_without(middle: float) -> None:
    noise = 0.01 * np.random.default_rng(0).normal(size=17)
    assert rise_p([sigmoid(middle)], [None]) <= ALPHA
    assert rise_p([sigmoid(middle) + noise], [None]) <= ALPHA


def walks(kind: str, seed: int, snapshots: int) -> np.ndarray:
    generator = np.random.default_rng([seed, snapshots])
    if kind == "noise":
        return generator.normal(size=snapshots)
    if kind == "heavy-tailed walk":
        return generator.standard_cauchy(size=snapshots).cumsum()
    return generator.normal(size=snapshots).cumsum()


@pytest.mark.parametrize("kind", ["walk", "noise", "heavy-tailed walk"])
@pytest.mark.parametrize("snapshots", [8, 17])
def test_random_walks_rise_no_more_often_than_promised(kind: str, snapshots: int) -> None:
    alarms = sum(rise_p([walks(kind, seed, snapshots)], [None], seed) <= ALPHA for seed in range(200))
    assert alarms <= 20  # at 0.05, more in 1 of 300 cases


def test_one_jump_is_a_sure_rise_in_several_runs_and_not_in_one() -> None:
    jump = np.where(STEPS >= 30, 100.0, 0.0)
    assert rise_p([jump], [None]) == pytest.approx(0.5, abs=0.05)
    assert rise_p([jump] * 6, [None] * 6) <= ALPHA


@pytest.mark.parametrize("scores", [np.full(8, 7.0), np.linspace(50, 50.1, 8), np.linspace(9.0, 1.0, 8)])
def test_flat_and_falling_curves_do_not_rise(scores: np.ndarray) -> None:
    assert not find_rise(STEPS, scores).sure


def test_learning_to_say_always_the_same_is_no_rise_of_accuracy() -> None:
    """Below its floor an accuracy has learnt nothing; the rise that counts begins there."""
    to_chance = np.array([0.0, 2, 4, 6, 8, 10, 10, 10])
    assert find_rise(STEPS, to_chance).sure
    assert not find_rise(STEPS, to_chance, floor=11.0).sure
    then_on = np.array([0.0, 4, 8, 10, 30, 60, 90, 100])
    assert find_rise(STEPS, then_on, floor=11.0).begin == 10


def test_the_window_of_a_step_is_its_two_snapshots() -> None:
    assert window(np.array([0.0, 0, 0, 1, 1, 1, 1, 1])) == (2, 3)
    assert change_point(np.array([0.0, 0, 0, 0, 0, 0, 1, 1])) == 6


def test_a_curve_that_falls_again_has_risen_before() -> None:
    begin, end = window(np.array([0.0, 0, 0, 100, 90, 95, 60, 40]))
    assert (begin, end) == (2, 3)


def test_a_curve_that_rises_throughout_has_no_earlier_end() -> None:
    assert window(np.arange(8.0)) == (0, 7)


@pytest.mark.parametrize("power", [8, 30, 1 / 8])
@pytest.mark.parametrize("middle", [4, 9, 13])
def test_a_power_of_a_curve_has_the_same_window(power: float, middle: float) -> None:
    curve = sigmoid(middle) + 0.02 * np.random.default_rng(1).random(17)
    assert window(curve**power) == window(curve) == window(np.exp(5 * curve))
