"""A rotation that only disturbs is told from one that is used, and from one that does nothing."""

import pytest
import torch

from models import load_counter
from models.config import TransformerConfig
from models.families import config_to_dict
from models.position_tables import rotary_angles
from models.transformer import Transformer
from probes.ablation.position_free import HINDERS, NEUTRAL, USED, position_free
from probes.result import NotApplicable

SLOW = 0.01  # of the usual rotation: training lengths are hardly disturbed, longer rows are


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
    from probes.ablation.position_free import _at, _rescored

    token_ids = torch.randint(10, (2, 30))
    position_ids = torch.arange(30).expand(2, -1)
    with counter.hooks(fwd_hooks=list(_rescored(counter, _at(counter, 0), 0))), torch.inference_mode():
        torch.testing.assert_close(counter(token_ids, position_ids), nope(token_ids, position_ids))


@pytest.mark.parametrize("name", ["selective/nope-2L", "mod10/rnn-1L", "mod10/rope-1L"])
def test_counters_that_it_makes_no_sense_for(name: str) -> None:
    with pytest.raises(NotApplicable):
        position_free(load_counter(name), rows=8)
