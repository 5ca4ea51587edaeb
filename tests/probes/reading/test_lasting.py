"""Periods that last over the whole row, and things that only look like one for a while."""

from collections.abc import Callable

import numpy as np
import pytest

from probes.reading.lasting import measure_lasting
from probes.reading.periods import find_period, innovations

POSITIONS = 127
SEEDS = 40
ALARMS = 5  # of 40: a test at the level 0.05 gives more in 1 of 70 cases
Sample = Callable[[np.random.Generator], np.ndarray]


def periodic(modulus: int, spread: float = 0.3, columns: int = 16) -> Sample:
    def sample(generator: np.random.Generator) -> np.ndarray:
        clusters = generator.normal(size=(modulus, columns))
        return clusters[np.arange(POSITIONS) % modulus] + spread * generator.normal(size=(POSITIONS, columns))

    return sample


def oscillator(damping: float, columns: int = 8) -> Sample:
    """AR(2): a resonance at the period 10 that noise keeps going; it forgets its phase after 1 / (1 - damping)."""

    def sample(generator: np.random.Generator) -> np.ndarray:
        x = generator.normal(size=(POSITIONS + 100, columns))
        first, second = 2 * damping * np.cos(2 * np.pi / 10), -(damping**2)
        for position in range(2, len(x)):
            x[position] += first * x[position - 1] + second * x[position - 2]
        return x[100:]

    return sample


def ringing(damping: float) -> Sample:
    """An oscillator that was struck once."""

    def sample(generator: np.random.Generator) -> np.ndarray:
        at = np.arange(POSITIONS)[:, None]
        waves = damping**at * np.cos(2 * np.pi * at / 10 + generator.uniform(0, 2 * np.pi, 8))
        return waves + 0.01 * generator.normal(size=waves.shape)

    return sample


def stopping(end: int) -> Sample:
    def sample(generator: np.random.Generator) -> np.ndarray:
        x = periodic(10, 0.0)(generator)
        x[end:] = 0
        return x + 0.3 * generator.normal(size=x.shape)

    return sample


def changing(generator: np.random.Generator) -> np.ndarray:
    """Other clusters in the second half."""
    one, other = (periodic(10)(generator) for _ in range(2))
    return np.where(np.arange(POSITIONS)[:, None] < POSITIONS // 2, one, other)


def slipping(turns: float = 0.0, step: float = 0.0) -> Sample:
    """Three harmonics of period 10 whose phase drifts evenly, or wanders."""

    def sample(generator: np.random.Generator) -> np.ndarray:
        sizes = generator.normal(size=(3, 16)) + 1j * generator.normal(size=(3, 16))
        at = np.arange(POSITIONS)
        phase = at / 10 + turns * at / POSITIONS + step * generator.normal(size=POSITIONS).cumsum()
        waves = np.exp(2j * np.pi * np.outer(phase, [1, 2, 3]))
        return (waves @ sizes).real + 0.1 * generator.normal(size=(POSITIONS, 16))

    return sample


FALSE: dict[str, Sample] = {
    "oscillator, damping 0.8": oscillator(0.8),
    "oscillator, damping 0.9": oscillator(0.9),
    "oscillator, damping 0.95": oscillator(0.95),
    "oscillator, damping 0.95, in one column": oscillator(0.95, 1),
    "struck once, damping 0.9": ringing(0.9),
    "struck once, damping 0.95": ringing(0.95),
    "up to position 30": stopping(30),
    "up to position 60": stopping(60),
    "up to position 90": stopping(90),
    "other clusters in the second half": changing,
    "phase drifts by a fifth of a turn": slipping(turns=0.2),
    "phase drifts by a turn": slipping(turns=1),
    "phase wanders": slipping(step=0.05),
    "trend": lambda generator: np.linspace(0, 1, POSITIONS)[:, None] + 0.01 * generator.normal(size=(POSITIONS, 8)),
    "random walk": lambda generator: generator.normal(size=(POSITIONS, 8)).cumsum(0),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_does_not_last_is_no_period(name: str) -> None:
    samples = [FALSE[name](np.random.default_rng([1, seed])) for seed in range(SEEDS)]
    found = [find_period(x, expected=10, permutations=1000).period for x in samples]
    assert len(found) - found.count(None) <= ALARMS


@pytest.mark.parametrize("name", ["up to position 60", "up to position 90", "other clusters in the second half"])
def test_a_period_in_a_part_of_the_row_is_said_to_fade(name: str) -> None:
    samples = [FALSE[name](np.random.default_rng([1, seed])) for seed in range(10)]
    assert [find_period(x, expected=10, permutations=1000).fading for x in samples] == [10] * 10


@pytest.mark.parametrize("modulus", [2, 3, 5, 7, 10, 13, 20])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_a_planted_period_lasts_whatever_the_noise(modulus: int, spread: float) -> None:
    for seed in range(5):
        x = innovations(periodic(modulus, spread)(np.random.default_rng(seed)), 40)
        assert x is not None
        found = measure_lasting(x, modulus)
        assert found.surely
        assert found.share.low < 1.1
        assert found.share.high > 0.9


@pytest.mark.parametrize("modulus", [5, 20])
def test_a_period_of_5_or_20_is_not_taken_for_10(modulus: int) -> None:
    samples = [periodic(modulus)(np.random.default_rng([2, seed])) for seed in range(10)]
    assert [find_period(x, expected=10, permutations=20_000).period for x in samples] == [modulus] * 10


def test_the_share_falls_with_the_time_for_which_an_oscillator_keeps_its_phase() -> None:
    shares = []
    for damping in (0.9, 0.98, 0.9999):
        samples = [innovations(oscillator(damping)(np.random.default_rng([3, seed])), 40) for seed in range(20)]
        shares.append(np.median([measure_lasting(x, 10).share.value for x in samples if x is not None]))
    assert shares[0] < 0.2 < shares[1] < 0.6
    assert shares[2] > 0.8


def test_where_nothing_varies_nothing_lasts() -> None:
    assert not measure_lasting(np.zeros((60, 3)), 10).surely


def test_a_share_of_next_to_nothing_is_not_given() -> None:
    """Where neighbouring parts hardly agree, a quotient would be thousands, and another for every rounding."""
    for seed in range(SEEDS):
        noise = np.random.default_rng(seed).normal(size=(POSITIONS, 64))
        left = measure_lasting(noise, 10)
        assert (left.share.value, left.surely) == (0.0, False)
        assert left.share.high - left.share.low < 1
