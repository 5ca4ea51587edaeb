"""Periods in attention scores: of planted waves, of noise, and of a counter whose keys are residues."""

import numpy as np
import pytest

from probes.mechanism.handbuilt import handbuilt_counter
from probes.studies.fourier import power_share, share_at_periods
from training.tasks import make_task


def test_white_noise_holds_as_much_as_its_share_of_the_frequencies() -> None:
    noise = np.random.default_rng(0).normal(size=(400, 120))
    assert power_share(noise, 10) == pytest.approx(9 / 119, abs=0.005)


@pytest.mark.parametrize(("period", "share"), [(10, 1), (5, 1), (2, 1), (8, 0), (20, 0)])
def test_waves_are_found_by_their_period(period: int, share: float) -> None:
    wave = np.cos(2 * np.pi * np.arange(120) / period)
    assert power_share(wave, 10) == pytest.approx(share, abs=1e-9)


def test_constant_scores_have_no_periods() -> None:
    assert np.isnan(power_share(np.ones((3, 120)), 10))


def test_keys_that_know_only_the_residue_vary_with_its_period_alone() -> None:
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True))
    weights = counter.blocks[0].attn
    weights.W_K.data.normal_()
    weights.W_Q.data.normal_()
    assert share_at_periods(counter, 0, 10) > 0.99
    assert share_at_periods(counter, 0, 7) < 0.5
