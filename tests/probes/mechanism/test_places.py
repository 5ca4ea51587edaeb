"""Every variable has places, and none where it would come out by itself."""

import pytest

from models import TransformerConfig, build_counter
from models.transformer import Transformer
from probes.mechanism.hypotheses import HYPOTHESES, hypotheses_of
from probes.mechanism.places import EDITS, Place, is_forced, may_hold, places_of
from training.tasks import Task, make_task


def counter_of(task: Task, position: str, n_layers: int = 2) -> Transformer:
    counter = build_counter(TransformerConfig(task.vocab.size, position, n_layers=n_layers, d_model=16, n_heads=2))
    assert isinstance(counter, Transformer)
    return counter


@pytest.mark.parametrize("position", ["nope", "ape", "rope", "spe"])
@pytest.mark.parametrize("task", [make_task("mod10"), make_task("mod10", bos=True), make_task("selective")])
def test_every_variable_of_every_hypothesis_has_a_place(task: Task, position: str) -> None:
    counter = counter_of(task, position)
    hypotheses = hypotheses_of(counter, task)
    places = places_of(counter, task, hypotheses)
    assert len(set(places)) == len(places)
    assert len({place.label for place in places if place.within is None}) == sum(
        place.within is None for place in places
    )
    for name, one in hypotheses.items():
        for variable in one.variables:
            assert any(may_hold(place, name, variable) for place in places), (name, variable.name)


def test_every_way_to_swap_is_used_by_some_variable_and_explained() -> None:
    used = {
        at for stated in HYPOTHESES.values() for one in stated.values() for each in one.variables for at in each.where
    }
    assert used == set(EDITS)


def test_hypotheses_that_cannot_be_are_left_out() -> None:
    bos, plain = make_task("mod10", bos=True), make_task("mod10")
    assert set(hypotheses_of(counter_of(bos, "nope"), bos)) == {"distance", "unit"}
    assert set(hypotheses_of(counter_of(bos, "rope"), bos)) == {"distance", "unit", "bos_phase", "bos_dials"}
    assert not {"unit", "bos_phase"} & set(hypotheses_of(counter_of(plain, "ape"), plain))


def test_only_one_layer_without_absolute_positions_forces_a_swap() -> None:
    bos = make_task("mod10", bos=True)
    attention = Place(("attn_out",), (0,))
    forced = {
        (position, n_layers): is_forced(counter, bos, attention, hypotheses_of(counter, bos)["distance"].variables[0])
        for position in ("nope", "rope", "ape")
        for n_layers in (1, 2)
        for counter in [counter_of(bos, position, n_layers)]
    }
    assert [key for key, is_so in forced.items() if is_so] == [("nope", 1), ("rope", 1)]
