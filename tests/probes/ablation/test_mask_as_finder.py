"""Counters built by hand that find their first token by the mask, and by its position id."""

import pytest
import torch

from models import CheckpointInfo, TransformerConfig, build_counter, load_counter
from models.transformer import Transformer
from probes.ablation.mask_as_finder import mask_as_finder
from probes.result import NotApplicable
from training.tasks import Task, make_task, task_settings

TASK = make_task("first_tok_heterogeneous", train_length=12, ood_length=20)
LINEAR = 1e8  # a LayerNorm epsilon so large that the norm only takes out the mean and divides by 1e4
KINDS, OTHER, ONE, NULL = 10, 20, 21, 22  # columns: own kind, kinds seen, "not first", a constant, nothing


def blank(position: str, task: Task, policy: str, causal: bool = True) -> Transformer:
    config = TransformerConfig(
        task.vocab.size,
        position,
        max_position=32,
        n_layers=1,
        d_model=23,
        n_heads=1,
        d_mlp=10,
        eps=LINEAR,
        causal=causal,
    )
    counter = build_counter(config)
    assert isinstance(counter, Transformer)
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy=policy)
    with torch.no_grad():
        for name, parameter in counter.named_parameters():
            parameter.fill_(1.0 if name.endswith(".w") else 0.0)
        counter.embed.W_E[:KINDS, :KINDS] = torch.eye(KINDS)
        counter.embed.W_E[:, ONE] = 1
        for token, column, weight in (("T", ONE, 0.02), ("F", OTHER, 1.0)):
            counter.unembed.W_U[column, task.vocab.id(token)] = 1e4 * weight
            counter.unembed.W_U[NULL, task.vocab.id(token)] = -1e4 * weight
    return counter.eval()


def finds_by_mask() -> Transformer:
    """Uniform attention: whoever sees anything but its own kind is not the first."""
    counter = blank("nope", TASK, "shifted")
    with torch.no_grad():
        block = counter.blocks[0]
        for kind in range(KINDS):
            block.attn.W_V[0, kind, kind], block.attn.W_V[0, NULL, kind] = 1e4, -1e4
            block.attn.W_O[0, kind, KINDS + kind] = 1
            block.mlp.W_in[kind, kind], block.mlp.W_in[KINDS + kind, kind] = 1e4, -1e4
        block.mlp.W_out[:, OTHER] = 1
    return counter


def finds_by_position() -> Transformer:
    """Position id 0 is the first token, whatever it sees."""
    counter = blank("ape", TASK, "contiguous")
    with torch.no_grad():
        counter.pos_embed.W_pos[1:, OTHER] = 1
    return counter


def test_a_counter_that_looks_at_what_it_sees_is_turned_round_by_the_mask() -> None:
    found = mask_as_finder(finds_by_mask(), rows=64)
    opened, closed = found.outcomes
    assert found.recognised.value == 1
    assert (opened.share.value, closed.share.value) == (1, 1)
    assert opened.control is not None
    assert opened.control.value == 0  # another token of its own kind shows it nothing
    assert found.headline.label == "the mask finds the first token"
    assert found.verdict.agrees is True


def test_a_counter_that_goes_by_position_is_not() -> None:
    found = mask_as_finder(finds_by_position(), rows=64)
    assert found.recognised.value == 1
    assert [outcome.share.value for outcome in found.outcomes] == [0, 0]
    assert found.headline.label == "not by the mask"
    assert found.verdict.agrees is False


def finds_by_both(either: bool) -> Transformer:
    """First is whoever has position id 0 and sees its own kind alone; or, whoever has one of both."""
    counter, by_mask = finds_by_position(), finds_by_mask()
    with torch.no_grad():
        mine, other = counter.blocks[0], by_mask.blocks[0]
        for name in ("attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out"):
            mine.get_parameter(name).copy_(other.get_parameter(name))
        if either:  # what it sees counts for little, so that a position id of 0 is enough, and seeing nothing else is
            counter.pos_embed.W_pos[1:, OTHER] = 0
            counter.pos_embed.W_pos[0, OTHER] = -1
    return counter


@pytest.mark.parametrize("either", [True, False])
def test_a_counter_that_goes_by_position_as_well_does_not_go_by_the_mask(either: bool) -> None:
    """Opened and closed masks must both turn the answers: one of them does."""
    found = mask_as_finder(finds_by_both(either), rows=64)
    assert found.recognised.value == 1
    opened, closed = (outcome.share.value for outcome in found.outcomes)
    assert (opened, closed) == ((0, 1) if either else (1, 0))
    assert found.headline.label == "not by the mask"


def test_without_a_mask_nothing_is_recognised() -> None:
    found = mask_as_finder(load_counter("first_tok_heterogeneous/nope-1L-noncausal"))
    assert found.recognised.value == 0
    assert found.outcomes == ()
    assert found.to_frame().empty
    assert found.verdict.agrees is True


def test_trained_counters() -> None:
    assert mask_as_finder(load_counter("first_tok_heterogeneous/nope-1L")).headline.label.startswith("the mask finds")
    equal = mask_as_finder(load_counter("first_tok_homogeneous/ape-1L-4d"))
    assert equal.outcomes[0].control is None
    assert equal.verdict.agrees is None
    assert mask_as_finder(load_counter("first_tok_homogeneous/nope-1L-4d")).headline.label.endswith("not recognised")


@pytest.mark.parametrize(("name", "reason"), [("mod10/ape-1L", "does not ask"), ("mod10/rnn-1L", "mask")])
def test_counters_that_it_makes_no_sense_for(name: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        mask_as_finder(load_counter(name))


@pytest.mark.parametrize("draws", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_attention_at_random_is_seldom_taken_for_the_finder(draws: int) -> None:
    """The position id tells the first token, and attention adds noise that turns a few answers."""
    alarms = []
    for seed in range(draws):
        counter = finds_by_position()
        generator = torch.Generator().manual_seed(seed)
        attention = counter.blocks[0].attn
        with torch.no_grad():
            for weight, size in ((attention.W_Q, 30.0), (attention.W_K, 30.0), (attention.W_V, 1e4)):
                weight.copy_(torch.randn(weight.shape, generator=generator) * size)
            attention.W_O.copy_(torch.randn(attention.W_O.shape, generator=generator) * 0.002)
        found = mask_as_finder(counter, rows=32, seed=seed)
        alarms.append(found.headline.label.startswith("the mask finds"))
    assert sum(alarms) <= 0.05 * draws
