"""Each edit does what it says: against runs in which the row itself was changed, and nothing else."""

import pytest
import torch
from torch import Tensor

from models import load_counter
from models.transformer import Transformer
from probes.inputs.counterfactual_rows import counted_rows, shifted_rows
from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.hypotheses import Variable
from probes.mechanism.interchange import Swapper
from probes.mechanism.places import Place
from probes.mechanism.swap_pairs import SwapPairs
from training.tasks import make_task

TASK = make_task("mod10", bos=True)
DISTANCE = Variable("distance", "tokens since bos", lambda query: query.distance, is_outcome=True)
COLUMNS, SOURCE_COLUMNS = torch.tensor([12, 20, 17, 25]), torch.tensor([19, 6, 28, 22])


def shipped(name: str) -> Transformer:
    """A trained counter: what a random one answers depends on hardly anything."""
    counter = load_counter(name)
    assert isinstance(counter, Transformer)
    return counter


def pairs_of(shifts: tuple[int, int] = (40, 40)) -> SwapPairs:
    token_ids = counted_rows(TASK, 30, 4, torch.Generator().manual_seed(0))
    base, source = (shifted_rows(TASK, token_ids, torch.full((4,), shift)) for shift in shifts)
    return SwapPairs(base, source, COLUMNS, SOURCE_COLUMNS)


def answers_at(counter: Transformer, position_ids: Tensor, column: Tensor) -> Tensor:
    pairs = pairs_of()
    with torch.inference_mode():
        logits = counter(pairs.base.token_ids, position_ids)
    return logits[pairs.row, column].argmax(-1)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_turned_key_is_that_of_a_bos_that_stands_elsewhere(n_layers: int) -> None:
    counter, pairs = shipped(f"mod10-bos/rope-{n_layers}L"), pairs_of()
    place = Place(("rot_k",), tuple(range(n_layers)), "turn")
    moved = pairs.base.position_ids.clone()
    moved[:, 0] -= SOURCE_COLUMNS - COLUMNS
    # In the layers behind the first, bos itself attends to bos alone: its own query does not matter.
    expected = answers_at(counter, moved, COLUMNS)
    assert torch.equal(Swapper(counter, pairs, [place], {}).answers(place, DISTANCE), expected)
    assert not torch.equal(expected, answers_at(counter, pairs.base.position_ids, COLUMNS))


@pytest.mark.parametrize("at", ["weight", "window"])
def test_without_positions_another_weight_or_share_of_bos_is_another_number_of_tokens(at: str) -> None:
    counter, pairs = shipped("mod10-bos/nope-1L"), pairs_of()
    place = Place(
        ("attn_scores",) if at == "weight" else ("pattern",), (0,), at, n_queries=None if at == "weight" else 1
    )
    expected = answers_at(counter, pairs.base.position_ids, SOURCE_COLUMNS)
    assert torch.equal(Swapper(counter, pairs, [place], {}).answers(place, DISTANCE), expected)


def test_a_weight_at_the_token_itself_leaves_other_tokens_alone() -> None:
    counter, pairs = shipped("mod10-bos/nope-2L"), pairs_of()
    whole, own = (Place(("attn_scores",), (0,), "weight", n_queries=number) for number in (None, 1))
    swapper = Swapper(counter, pairs, [whole, own], {})
    seen: dict[str, Tensor] = {}

    def keep(tensor: Tensor, hook: object) -> None:
        seen["z"] = tensor.clone()

    for place, unchanged in ((whole, False), (own, True)):
        with counter.hooks(fwd_hooks=[("blocks.0.attn.hook_z", keep)]):
            swapper.answers(place, DISTANCE)
        with torch.inference_mode():
            _, cache = counter.run_with_cache(pairs.base.token_ids, pairs.base.position_ids)
        same = torch.isclose(seen["z"], cache["z", 0], atol=1e-6).all(-1).all(-1)
        same[pairs.row, pairs.column] = True
        assert bool(same.all()) == unchanged


def test_a_run_from_the_swapped_layer_is_a_run_of_the_whole() -> None:
    counter, pairs = handbuilt_counter("second_position", TASK), pairs_of((40, 47))
    place = Place(("k", "v"), (1,), "context")
    swapper = Swapper(counter, pairs, [place], {})
    hooks = [(name, lambda tensor, hook, name=name: swapper.source[name]) for name in place.hooks]
    with torch.inference_mode():
        logits = counter.run_with_hooks(pairs.base.token_ids, pairs.base.position_ids, fwd_hooks=hooks)
    assert torch.equal(swapper.answers(place), logits[pairs.row, pairs.column].argmax(-1))
    assert torch.equal(swapper.own_answers, answers_at(counter, pairs.base.position_ids, COLUMNS))


def test_the_placebo_of_a_weight_is_the_second_token() -> None:
    counter, pairs = shipped("mod10-bos/nope-1L"), pairs_of()
    place = Place(("attn_scores",), (0,), "weight")
    edit = Swapper(counter, pairs, [place], {})._edit(place, place.hooks[0], DISTANCE, placebo=0)
    added = edit(torch.zeros(4, 4, 31, 31), None)
    assert added[:, :, :, 1].abs().min() > 0
    added[:, :, :, 1] = 0
    assert not added.any()
