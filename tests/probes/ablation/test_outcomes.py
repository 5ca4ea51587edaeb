"""Outcomes stand out when they surely differ from their controls, and seldom by chance."""

import numpy as np
import pytest
import torch

from probes.ablation.outcomes import Outcome, grade_outcome
from probes.stats import Interval, share_interval


def outcome(share: Interval, control: Interval | None) -> Outcome:
    return Outcome("shifted", "L0", "move", share, control)


def test_grades_go_by_the_share_and_its_control() -> None:
    half, most, little = Interval(0.4, 0.3, 0.5), Interval(0.9, 0.8, 0.95), Interval(0.05, 0.0, 0.1)
    assert grade_outcome(outcome(most, little)) == "yes"
    assert grade_outcome(outcome(half, little)) == "in part"
    assert grade_outcome(outcome(half, most)) == "no"
    assert grade_outcome(outcome(most, None)) == "no"
    assert outcome(Interval(0.0, -1e-17, 0.1), little).text == "0% (0% to 10%, control 5%)"


@pytest.mark.parametrize("truth", [0.02, 0.1, 0.5, 0.95])
def test_equal_shares_seldom_stand_out(truth: float) -> None:
    generator = np.random.default_rng(0)
    draws = torch.tensor(generator.random((1000, 2, 48)) < truth)
    found = [outcome(*(share_interval(right) for right in pair)).stands_out for pair in draws]
    assert np.mean(found) <= 0.05
