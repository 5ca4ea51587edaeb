"""Planted circles with drift are found with their angle; what only fits the first half, or fades, is none."""

import numpy as np
import pytest

from models import load_counter
from models.errors import CountLensError
from probes.reading.state_trajectory import find_circle, state_trajectory
from probes.result import NotApplicable

POSITIONS = np.arange(1, 101)


def planted(turns: int, modulus: int, fades: float = 1.0, d: int = 40) -> np.ndarray:
    """States that go round in a random plane, above a crooked drift that is ten times as large."""
    generator = np.random.default_rng(0)
    angle = 2 * np.pi * turns * POSITIONS / modulus
    wave = np.stack([np.cos(angle), np.sin(angle)], 1) * (fades**POSITIONS)[:, None]
    drift = 10 * np.stack([POSITIONS / 100, (POSITIONS / 100) ** 2], 1)
    return wave @ generator.normal(size=(2, d)) + drift @ generator.normal(size=(2, d))


@pytest.mark.parametrize(("turns", "modulus"), [(1, 10), (3, 10), (2, 7)])
def test_a_planted_circle_is_found_with_its_angle_in_spite_of_drift(turns: int, modulus: int) -> None:
    circle = find_circle(planted(turns, modulus), POSITIONS, modulus)
    assert circle is not None
    assert circle.holds
    assert circle.turns == turns
    np.testing.assert_allclose(circle.later_steps, 360 * turns / modulus, atol=2)
    assert circle.radius == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("d", [8, 2000])
def test_noise_makes_no_circle_however_many_dimensions_there_are(d: int) -> None:
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=(100, d))
        circle = find_circle(noise, POSITIONS, 10)
        assert circle is not None
        assert not circle.holds


def test_a_random_walk_makes_no_circle() -> None:
    for seed in range(10):
        walk = np.random.default_rng(seed).normal(size=(100, 200)).cumsum(0)
        circle = find_circle(walk, POSITIONS, 10)
        assert circle is not None
        assert not circle.holds


def test_a_circle_that_fades_is_none() -> None:
    circle = find_circle(planted(1, 10, fades=0.95), POSITIONS, 10)
    assert circle is not None
    assert not circle.holds
    assert circle.radius < 0.3


def test_a_circle_on_which_the_state_later_turns_by_another_angle_is_none() -> None:
    turn = np.where(POSITIONS <= 50, 36, 31).cumsum() * np.pi / 180
    circle = find_circle(np.stack([np.cos(turn), np.sin(turn)], 1), POSITIONS, 10)
    assert circle is not None
    assert circle.radius == pytest.approx(1, abs=0.2)
    assert not circle.holds


def test_a_circle_of_another_modulus_is_none() -> None:
    circle = find_circle(planted(1, 10), POSITIONS, 9)
    assert circle is not None
    assert not circle.holds


def test_states_on_a_line_only_drift() -> None:
    line = np.outer(POSITIONS, np.ones(5)).astype(float)
    assert find_circle(line, POSITIONS, 10) is None


@pytest.mark.parametrize("name", ["mod10/rnn-1L", "mod10/lstm-1L"])
def test_counters_that_extrapolate_go_round_in_ten_tokens(name: str) -> None:
    found = state_trajectory(load_counter(name), length=200)
    assert found.circle is not None
    assert found.circle.holds
    assert found.circle.later_steps.mean() == pytest.approx(36, abs=0.5)
    assert "goes round: 36." in found.verdict.sentence
    assert found.counts[:12] == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2)


def test_a_counter_that_does_not_extrapolate_leaves_its_circle() -> None:
    found = state_trajectory(load_counter("mod10/s4-1L"))
    assert found.circle is not None
    assert not found.circle.holds
    assert "does not go round in 10 tokens" in found.verdict.sentence


def test_the_table_has_a_line_a_position_with_angles_where_there_are_some() -> None:
    found = state_trajectory(load_counter("mod10/rnn-1L"), length=60, modulus=5)
    frame = found.to_frame()
    assert frame["position"].tolist() == list(range(1, 61))
    assert found.circle is not None
    assert frame["angle"].notna().sum() == len(found.circle.positions) == 60 - 1 - 4
    np.testing.assert_allclose(frame[["component_1", "component_2"]], found.coordinates[:, :2])


def test_what_cannot_be_asked_is_said() -> None:
    with pytest.raises(NotApplicable, match="attention"):
        state_trajectory(load_counter("mod10/ape-2L"))
    rnn = load_counter("mod10/rnn-1L")
    with pytest.raises(CountLensError, match="5 rounds"):
        state_trajectory(rnn, length=49)
    with pytest.raises(CountLensError, match="unknown layer '1'"):
        state_trajectory(rnn, layer=1)
