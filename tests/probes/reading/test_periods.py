"""Periods of hand-made activations: those that have one, those that have none, and a null that would not do."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.stats import kstest

from models.errors import CountLensError
from probes.reading import periods
from probes.reading.periods import (
    Periods,
    cluster_score,
    comb_share,
    find_period,
    innovations,
    spectrum_of,
    weights,
)
from probes.stats import ALPHA

POSITIONS = 127
PERMUTATIONS = 2000  # of tests that draw many samples
SEEDS = 100
Sample = Callable[[np.random.Generator], np.ndarray]


def score_of(found: Periods, modulus: int) -> float:
    return float(found.scores[found.moduli.index(modulus)])


def noise(generator: np.random.Generator, columns: int = 8) -> np.ndarray:
    return generator.normal(size=(POSITIONS, columns))


def autoregression(inherited: float, columns: int = 8) -> Sample:
    def sample(generator: np.random.Generator) -> np.ndarray:
        x = generator.normal(size=(POSITIONS + 50, columns))
        for position in range(1, len(x)):
            x[position] += inherited * x[position - 1]
        return x[50:]

    return sample


def random_walk(generator: np.random.Generator) -> np.ndarray:
    return noise(generator).cumsum(0)


def smooth_walk(generator: np.random.Generator) -> np.ndarray:
    return noise(generator).cumsum(0).cumsum(0)


def ramp(generator: np.random.Generator) -> np.ndarray:
    return np.linspace(0, 1, POSITIONS)[:, None] * generator.normal(size=8) + 0.01 * noise(generator)


def steps(generator: np.random.Generator) -> np.ndarray:
    distance = np.arange(POSITIONS)[:, None] - generator.uniform(0, POSITIONS, 4)
    return np.tanh(distance / generator.uniform(0.1, 10, 4)) * generator.normal(size=4)


def sines(number: int) -> Sample:
    """A table of sines and cosines of random frequencies: no two of them have a common period."""

    def sample(generator: np.random.Generator) -> np.ndarray:
        turns = np.outer(np.arange(POSITIONS), generator.uniform(0, 0.5, number)) + generator.uniform(size=number)
        return np.concatenate([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], 1)

    return sample


def sine_table(generator: np.random.Generator) -> np.ndarray:
    """Like a positional sine table: wavelengths from 2 pi up, geometrically, of a random base."""
    rates = generator.uniform(0.5, 1) * 10 ** (-generator.uniform(2, 5) * np.arange(16) / 16)
    turns = np.outer(np.arange(POSITIONS), rates)
    return np.concatenate([np.sin(turns), np.cos(turns)], 1)


NULLS: dict[str, Sample] = {
    "white noise": noise,
    "white noise in one column": lambda generator: noise(generator, 1),
    "autoregression 0.5": autoregression(0.5),
    "autoregression 0.9": autoregression(0.9),
    "autoregression 0.9 in one column": autoregression(0.9, 1),
    "random walk": random_walk,
    "smooth walk": smooth_walk,
    "ramp": ramp,
    "steps": steps,
    "one sine": sines(1),
    "two sines": sines(2),
    "eight sines": sines(8),
    "sine table": sine_table,
}


@cache
def smallest_p(name: str, expected: int | None = None) -> np.ndarray:
    """Of all moduli, in many samples."""
    samples = (NULLS[name](np.random.default_rng(seed)) for seed in range(SEEDS))
    return np.array([find_period(x, expected=expected, permutations=PERMUTATIONS).p.min() for x in samples])


@pytest.mark.parametrize("name", NULLS)
def test_without_a_period_false_alarms_are_as_rare_as_promised(name: str) -> None:
    """As far as a hundred samples can show it."""
    p = smallest_p(name)
    for level in (ALPHA, 0.2, 0.5):
        assert (p <= level).mean() <= level + 2 * np.sqrt(level * (1 - level) / len(p))


def test_over_all_kinds_of_samples_false_alarms_stay_below_5_percent() -> None:
    assert (np.concatenate([smallest_p(name) for name in NULLS]) <= ALPHA).mean() <= ALPHA


def test_an_expected_modulus_costs_no_false_alarms() -> None:
    p = np.concatenate([smallest_p(name, expected=10) for name in ("random walk", "white noise")])
    assert (p <= ALPHA).mean() <= ALPHA


@pytest.mark.parametrize("sample", [noise, autoregression(0.5), sines(8)], ids=["noise", "autoregression", "sines"])
def test_p_values_of_one_modulus_are_uniform_over_seeds(sample: Sample) -> None:
    samples = (sample(np.random.default_rng(seed)) for seed in range(200))
    p = np.array([find_period(x, range(2, 21), permutations=1000).p_alone for x in samples])
    for modulus in (3, 7, 13):
        assert kstest(p[:, modulus - 2], "uniform").pvalue > 0.01
    # Of an even one they may be too large, for the tooth at 1/2.
    assert kstest(p[:, 10 - 2], "uniform", alternative="greater").pvalue > 0.01


def shuffled_positions_p(x: np.ndarray, generator: np.random.Generator) -> float:
    """The obvious test: how the largest share of variance between clusters compares with shuffled positions."""
    orders = [np.arange(POSITIONS), *(generator.permutation(POSITIONS) for _ in range(99))]
    shuffled = (x - x.mean(0))[np.array(orders)]
    excess = []
    for modulus in range(2, 21):
        sums = np.array([shuffled[:, residue::modulus].sum(1) for residue in range(modulus)])
        sizes = np.array([len(range(residue, POSITIONS, modulus)) for residue in range(modulus)])
        shares = ((sums**2).sum(2) / sizes[:, None]).sum(0) / (shuffled[0] ** 2).sum()
        excess.append((shares - shares.mean()) / shares.std())
    largest = np.max(excess, axis=0)
    return float((largest >= largest[0]).mean())


@pytest.mark.parametrize("sample", [sines(1), sines(8), autoregression(-0.7)], ids=["sine", "sines", "autoregression"])
def test_shuffling_positions_instead_would_find_periods_where_there_are_none(sample: Sample) -> None:
    """What the tests above would say of the obvious null."""
    generators = [np.random.default_rng(seed) for seed in range(20)]
    p = np.array([shuffled_positions_p(sample(generator), generator) for generator in generators])
    assert (p <= ALPHA).mean() > 0.5


def clusters(modulus: int, generator: np.random.Generator, columns: int = 16) -> np.ndarray:
    x = generator.normal(size=(modulus, columns))[np.arange(POSITIONS) % modulus]
    return x / np.sqrt(x.var(0).sum())


def scaled(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(x.var(0).sum())


@pytest.mark.parametrize("modulus", range(2, 21))
def test_clusters_are_found_with_the_right_modulus(modulus: int) -> None:
    """Half as much noise as signal."""
    for seed in range(3):
        generator = np.random.default_rng(seed)
        found = find_period(clusters(modulus, generator) + np.sqrt(0.5) * scaled(noise(generator, 16)))
        assert found.period == modulus
        assert found.p[found.best] < 0.05
        assert 0.5 < score_of(found, modulus) < 0.8


@pytest.mark.parametrize("modulus", [3, 7, 10, 16])
def test_clusters_are_found_under_a_drift_nine_times_as_large(modulus: int) -> None:
    generator = np.random.default_rng(modulus)
    drift = scaled(noise(generator, 16).cumsum(0))
    x = clusters(modulus, generator) + 3 * drift + 0.3 * scaled(noise(generator, 16))
    assert find_period(x).period == modulus


def test_exact_clusters_reach_the_smallest_p_and_a_score_of_one() -> None:
    found = find_period(clusters(10, np.random.default_rng(0)))
    assert found.period == 10
    assert found.p[found.best] < 0.001
    assert score_of(found, 10) == pytest.approx(1, abs=0.01)


def test_the_smallest_period_is_named_and_not_its_multiples() -> None:
    for seed in range(5):
        generator = np.random.default_rng(seed)
        found = find_period(clusters(5, generator) + 0.3 * scaled(noise(generator, 16)))
        at = [found.moduli.index(modulus) for modulus in (5, 10, 15, 20)]
        assert (found.p[at] <= ALPHA).all()  # multiples cluster too
        assert found.period == 5


def test_a_period_made_of_two_shorter_ones_is_their_product() -> None:
    """Parity and PID mod 5 side by side: only mod 10 explains both."""
    generator = np.random.default_rng(0)
    x = np.concatenate([0.5 * clusters(2, generator, 4), clusters(5, generator, 4)], 1)
    assert find_period(x + 0.3 * scaled(noise(generator))).period == 10


def circle(turns: float, generator: np.random.Generator, spread: float = 0.3) -> np.ndarray:
    """Positions on a circle, so many turns each, with some noise."""
    angles = 2 * np.pi * turns * np.arange(POSITIONS)
    return np.stack([np.cos(angles), np.sin(angles)], 1) + spread * scaled(noise(generator, 2))


def test_a_circle_is_a_period_where_it_was_expected() -> None:
    found = [find_period(circle(1 / 10, np.random.default_rng(seed)), expected=10).period for seed in range(10)]
    assert found.count(10) >= 9


def test_a_circle_of_another_frequency_is_none_though_it_clusters_somewhere() -> None:
    found = [find_period(circle(0.0942, np.random.default_rng(seed), 0.05), expected=10) for seed in range(10)]
    assert [periods.period for periods in found].count(None) >= 9
    assert max(periods.scores.max() for periods in found) > 0.5


def test_constants_and_pure_ramps_have_nothing_to_explain() -> None:
    generator = np.random.default_rng(0)
    for x in (np.ones((POSITIONS, 3)), np.linspace(0, 1, POSITIONS)[:, None], 1 + 1e-7 * noise(generator)):
        found = find_period(x.astype(np.float32))
        assert not found.varies
        assert found.period is None
        assert found.p.min() == 1


def test_rotating_scaling_and_moving_activations_changes_nothing() -> None:
    generator = np.random.default_rng(0)
    x = clusters(7, generator, 8) + 0.5 * noise(generator) / 8
    turn, _ = np.linalg.qr(generator.normal(size=(8, 8)))
    one, other = find_period(x), find_period(3 * x @ turn + 5)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-9)
    np.testing.assert_allclose(one.p, other.p)


def test_the_share_is_the_variance_between_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a taper and with whole rounds: against the means of the clusters themselves."""
    monkeypatch.setattr(periods, "TAPERED", 0.0)
    x = noise(np.random.default_rng(0))[:120]
    x = x - x.mean(0)
    for modulus in (2, 5, 12):
        means = np.array([x[residue::modulus].mean(0) for residue in range(modulus)])
        between = (means**2).sum() / modulus / (x**2).sum(1).mean()
        assert comb_share(spectrum_of(x), modulus) == pytest.approx(between)


def test_power_is_read_off_right_at_any_frequency() -> None:
    x = innovations(noise(np.random.default_rng(0)), 40)
    assert x is not None
    spectrum = spectrum_of(x)
    taper = periods.tukey(len(x) + 2, periods.TAPERED)[1:-1]
    at = 1234
    frequency = at / 2 / (len(spectrum.power) - 1)
    waves = np.exp(-2j * np.pi * frequency * np.arange(len(x))) @ (x * taper[:, None])
    size = (taper**2).sum() / taper.sum() ** 2 / ((x * taper[:, None]) ** 2).sum()
    assert spectrum.power[at] == pytest.approx(size * (np.abs(waves) ** 2).sum())


def test_a_score_without_a_null_is_nearly_the_same() -> None:
    generator = np.random.default_rng(0)
    x = clusters(10, generator) + 0.5 * scaled(noise(generator, 16))
    assert cluster_score(x, 10) == pytest.approx(score_of(find_period(x), 10))
    assert cluster_score(np.ones((POSITIONS, 2)), 10) == 0


def test_weights_share_out_the_whole_error_rate() -> None:
    for expected in (None, 10):
        assert weights(tuple(range(2, 21)), expected).sum() == pytest.approx(1)
    assert weights((10,), 10).tolist() == [1]


def test_the_same_seed_gives_the_same_numbers() -> None:
    x = noise(np.random.default_rng(0))
    one, same, other = (find_period(x, seed=seed, permutations=500) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.p, same.p)
    assert (one.p != other.p).any()


@pytest.mark.parametrize(
    ("positions", "moduli", "message"),
    [(50, [20], "50 positions hold fewer than 6 rounds of 20: use moduli up to 8"), (50, [1], "each 2 or more")],
)
def test_too_few_rounds_are_refused(positions: int, moduli: list[int], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        find_period(noise(np.random.default_rng(0))[:positions], moduli)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(CountLensError, match="finite"):
        find_period(np.full((POSITIONS, 2), np.nan))


def test_short_rows_are_tried_with_the_moduli_that_they_hold() -> None:
    found: Periods = find_period(noise(np.random.default_rng(0))[:30])
    assert found.moduli == tuple(range(2, 6))
