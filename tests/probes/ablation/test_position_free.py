"""A rotation that only disturbs is told from one that is used, and from one that does nothing."""

import numpy as np
import pytest
import torch

from models import load_counter
from models.config import TransformerConfig
from models.families import config_to_dict
from models.position_tables import rotary_angles
from models.transformer import Transformer
from probes.ablation.position_free import (
    HINDERS,
    NEUTRAL,
    USED,
    Rescored,
    _angle_at,
    _rescore_hooks,
    _RowScores,
    position_free,
)
from probes.result import NotApplicable
from probes.stats import Interval

SLOW = 0.04  # of the usual rotation: training lengths are hardly disturbed, longer rows are


def rotated(speed: float) -> Transformer:
    """A counter that attends by token alone, with a rotation on top that it was not trained with."""
    nope = load_counter("selective-bos/nope-1L")
    counter = Transformer(TransformerConfig(**(config_to_dict(nope.cfg) | {"position": "rope"})))
    counter.load_state_dict(nope.state_dict(), strict=False)
    angles = rotary_angles(counter.cfg.max_position, counter.cfg.d_head) * speed
    counter.rotary_cos, counter.rotary_sin = angles.cos(), angles.sin()
    counter.info = nope.info
    return counter.eval()


def test_a_rotation_that_only_disturbs_hinders() -> None:
    found = position_free(rotated(SLOW), rows=32)
    assert found.label == HINDERS
    assert found.verdict.agrees is True
    undone = found.accuracy("all at one distance", "ood")
    assert undone.share.value > found.clean["ood"].value + 0.2


def test_a_rotation_by_nothing_makes_no_difference() -> None:
    found = position_free(rotated(0.0), rows=32)
    assert found.label == NEUTRAL
    assert found.verdict.agrees is False
    assert all(one.share.value == pytest.approx(found.clean[one.place].value) for one in found.outcomes)


def test_a_rotation_that_adds_distances_is_used() -> None:
    found = position_free(load_counter("shifted_start/rope-1L"), rows=24)
    assert found.label == USED
    assert found.verdict.agrees is None
    known = found.accuracy("known distances only", "ind").share.value
    assert known == pytest.approx(found.clean["ind"].value)  # no distance is unknown there
    assert found.accuracy("known distances only", "ood").share.value < 0.2


def test_scores_of_one_distance_are_those_of_unrotated_queries_and_keys() -> None:
    """At distance 0 nothing is turned: the counter answers as the one without positions does."""
    counter, nope = rotated(1.0), load_counter("selective-bos/nope-1L")
    token_ids = torch.randint(10, (2, 30))
    position_ids = torch.arange(30).expand(2, -1)
    with counter.hooks(fwd_hooks=list(_rescore_hooks(counter, _angle_at(counter, 0), 0))), torch.inference_mode():
        torch.testing.assert_close(counter(token_ids, position_ids), nope(token_ids, position_ids))


@pytest.mark.parametrize("name", ["selective/nope-2L", "mod10/rnn-1L", "mod10/rope-1L"])
def test_counters_that_it_makes_no_sense_for(name: str) -> None:
    with pytest.raises(NotApplicable):
        position_free(load_counter(name), rows=8)


@pytest.mark.parametrize("draws", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_changes_without_a_direction_are_seldom_a_gain_or_a_loss(draws: int) -> None:
    """Rows lose and gain tokens at random: 40 of 50 are right before and after, on the average."""
    generator = np.random.default_rng(0)
    scored = np.full(48, 50.0)
    verdicts = []
    for draw in range(draws):
        hits = generator.binomial(50, np.clip(generator.normal(0.8, 0.1, (1, 48)), 0, 1), (2, 48)).astype(float)
        before, after = (_RowScores(row, scored, Interval(0.8, 0.7, 0.9)) for row in hits)
        found = Rescored("", "", "", after.share, before.share, change=after.change_from(before, draw))
        verdicts.append(found.surely_lost or found.surely_gained)
    assert np.mean(verdicts) <= 0.05
