"""Position policies and batches."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models import TransformerConfig, build_counter
from models.counter import Counter
from models.errors import CountLensError
from models.families import FAMILIES, TRANSFORMER
from models.schemes import SCHEMES
from training.batches import (
    SHORTEST_ROW,
    WeightedTokens,
    draw_batch,
    draw_tokens,
    grown_length,
    merge_equal_rows,
)
from training.policies import POLICIES, get_policy
from training.run.loop import loss_of
from training.tasks import NOT_SCORED, Task, make_task

LENGTHS = torch.tensor([50, 70, 100] * 2000)


def test_contiguous_positions_start_at_zero(generator: torch.Generator) -> None:
    ids = get_policy("contiguous").draw(LENGTHS, 100, 128, generator)
    assert torch.equal(ids, torch.arange(100).expand(len(LENGTHS), -1))


def test_shifted_positions_are_uniform_over_what_fits_the_row(generator: torch.Generator) -> None:
    ids = get_policy("shifted").draw(LENGTHS, 100, 128, generator)
    for length in (50, 70, 100):
        rows = ids[length == LENGTHS, :length]
        assert (rows.diff(dim=1) == 1).all()
        assert set(rows[:, 0].tolist()) == set(range(128 - length))
        assert rows.max() == 126  # as in the paper, whose rows never reach the last id
        mean = rows[:, 0].float().mean().item()
        assert mean == pytest.approx((127 - length) / 2, abs=0.02 * 128)


def test_randomised_positions_are_sorted_different_and_reach_everywhere(generator: torch.Generator) -> None:
    ids = get_policy("randomised").draw(LENGTHS, 100, 128, generator)
    for length in (50, 70, 100):
        rows = ids[length == LENGTHS, :length]
        assert (rows.diff(dim=1) > 0).all()
        used = torch.bincount(rows.flatten(), minlength=128) / len(rows)
        assert (used - length / 128).abs().max() < 0.05  # every id is equally often used
    assert ids.shape == (len(LENGTHS), 100)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_row_as_long_as_the_positions_fits_exactly(policy: str, generator: torch.Generator) -> None:
    ids = get_policy(policy).draw(torch.tensor([128, 128]), 128, 128, generator)
    assert torch.equal(ids, torch.arange(128).expand(2, -1))


def test_an_unknown_policy_is_refused_with_the_near_ones() -> None:
    with pytest.raises(CountLensError, match="did you mean randomised"):
        get_policy("randomized")


SIZES = {"s4": {"d_model": 4, "d_state": 8}, "mamba": {"d_model": 4}, "rwkv6": {"d_model": 8, "d_head": 4}}
FIXED_TABLES = ("sine", "spe")  # as ape, but for what is learned
COUNTERS = {
    name: TransformerConfig(13, name, d_model=8, n_heads=2, d_mlp=8) for name in SCHEMES if name not in FIXED_TABLES
}
RECURRENT = [name for name in FAMILIES if name != TRANSFORMER]
COUNTERS |= {name: FAMILIES[name].config(13, **SIZES.get(name, {"d_model": 8})) for name in RECURRENT}


def gradient(counter: Counter, tokens: WeightedTokens, scale: float = 1.0) -> Tensor:
    """The gradient of the loss as the training loop computes it."""
    counter.zero_grad()
    batch = tokens.batch
    (scale * loss_of(counter.train()(batch.token_ids, batch.position_ids), tokens)).backward()
    return torch.cat([p.grad.flatten() for p in counter.parameters() if p.grad is not None])


def lively(name: str, task: Task, generator: torch.Generator, **changes: object) -> Counter:
    """A counter whose weights are so large that its loss depends on everything."""
    config = replace(COUNTERS[name], d_vocab=task.vocab.size, **changes)
    counter = build_counter(config, generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.mul_(3)
    return counter


def draw_all(
    counter: Counter, task: Task, generator: torch.Generator, size: int = 10_000, policy: str = "shifted"
) -> WeightedTokens:
    return draw_tokens(counter, task, policy, "train", size, generator)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("name", COUNTERS)
def test_the_exact_gradient_is_the_average_over_many_drawn_rows(
    name: str, bos: bool, generator: torch.Generator
) -> None:
    """Within three standard errors of the mean over 16 times 500 drawn rows, for every family."""
    task = make_task("mod10", bos=bos, train_length=12, ood_length=14)
    counter = lively(name, task, generator, max_position=16)
    table = draw_all(counter, task, generator)
    assert len(table.shares) == (1 if counter.ignores_shifts else 15 - bos)
    exact = gradient(counter, table)
    draws = [draw_batch(task, "shifted", 16, "train", 500, generator) for _ in range(16)]
    drawn = torch.stack([gradient(counter, WeightedTokens(draw, draw.attention_mask.float())) for draw in draws])
    error, spread = (drawn.mean(0) - exact).norm(), drawn.std(0).norm() / 4
    assert error < 3 * spread
    assert spread < 0.1 * exact.norm()


@pytest.mark.parametrize("task", ["mod10", "helper", "vanilla_succession", "helper_shifted", "shifted_start"])
def test_some_rows_of_the_table_give_its_gradient_on_average(task: str, generator: torch.Generator) -> None:
    counting = make_task(task, train_length=8, ood_length=14)
    counter = lively("ape", counting, generator, max_position=16)
    exact = gradient(counter, draw_all(counter, counting, generator))
    n_rows = len(draw_all(counter, counting, generator).shares)
    drawn = [gradient(counter, draw_all(counter, counting, generator, n_rows // 3)) for _ in range(400)]
    assert all(len(draw_all(counter, counting, generator, size).shares) == size for size in (1, n_rows // 3))
    spread = torch.stack(drawn).std(0).norm() / 20
    error = (torch.stack(drawn).mean(0) - exact).norm()
    assert error < 2 * spread
    assert spread < 0.2 * exact.norm()


def test_rows_share_prefixes_only_in_a_causal_counter(generator: torch.Generator) -> None:
    task = make_task("mod10", train_length=5, ood_length=7)
    two_ways = lively("nope", task, generator, max_position=8, causal=False)
    table = draw_all(two_ways, task, generator)
    assert table.batch.attention_mask.sum(1).tolist() == [1, 2, 3, 4, 5]
    assert table.shares.sum(1).tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    causal = draw_all(lively("nope", task, generator, max_position=8), task, generator)
    assert causal.shares.tolist() == [pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])]


def test_shares_are_those_of_the_papers_sampler(generator: torch.Generator) -> None:
    """Start s, column c: the sum over n >= c with s <= 127 - n of 1 / (50 * (128 - n))."""
    task = make_task("mod10")
    table = draw_all(lively("ape", task, generator), task, generator)
    assert table.batch.position_ids[:, 0].tolist() == list(range(127))
    for start, column in ((0, 1), (0, 50), (77, 50), (78, 50), (100, 1), (100, 27), (126, 1)):
        expected = sum(1 / (50 * (128 - n)) for n in range(column, 51) if start <= 127 - n)
        assert table.shares[start, column - 1].item() == pytest.approx(expected, rel=1e-5)


def test_rows_of_their_own_are_drawn_where_they_are_asked_for(generator: torch.Generator) -> None:
    task = make_task("mod10")
    counter = lively("ape", task, generator)
    drawn = draw_tokens(counter, task, "shifted", "train", 300, generator, independent_rows=True)
    assert len(drawn.shares) == 300
    assert set(drawn.shares.unique().tolist()) == {0.0, 1.0}
    assert drawn.batch.attention_mask.sum(1).unique().tolist() == list(range(1, 51))


def test_randomised_positions_are_drawn_unless_the_counter_ignores_them(generator: torch.Generator) -> None:
    task = make_task("mod10")
    assert len(draw_all(lively("ape", task, generator), task, generator, 40, "randomised").shares) == 40
    assert len(draw_all(lively("lstm", task, generator), task, generator, 40, "randomised").shares) == 1


def test_a_counter_that_sees_distances_gets_the_gaps_of_randomised_positions(generator: torch.Generator) -> None:
    """Rope ignores shifts, but not the gaps between position ids."""
    task = make_task("mod10")
    batch = draw_all(lively("rope", task, generator), task, generator, 40, "randomised").batch
    gaps = batch.position_ids.diff(dim=1)[batch.attention_mask[:, 1:]]
    assert gaps.min() == 1
    assert gaps.max() > 5


@pytest.mark.parametrize(("task", "position"), [("mod10", "ape"), ("helper", "nope"), ("mod10", "nope")])
def test_merged_rows_give_the_same_loss_and_gradient(task: str, position: str, generator: torch.Generator) -> None:
    counting = make_task(task)
    counter = lively(position, counting, generator).double()
    batch = draw_batch(counting, "contiguous", 128, "train", 200, generator)
    merged = merge_equal_rows(batch, counter.ignores_positions)
    assert len(merged.token_ids) < 100
    assert merged.weights.sum() == 200
    expected, found = (
        gradient(counter, WeightedTokens(rows, rows.attention_mask * rows.weights[:, None])) for rows in (batch, merged)
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    assert expected.abs().max() > 1e-3


def test_loss_is_the_mean_over_scored_tokens(generator: torch.Generator) -> None:
    task = make_task("helper")
    batch = draw_batch(task, "shifted", 128, "train", 8, generator)
    logits = torch.randn(*batch.token_ids.shape, task.vocab.size, generator=generator)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.label_ids.flatten(), ignore_index=-1)
    torch.testing.assert_close(loss_of(logits, WeightedTokens(batch, batch.attention_mask.float())), expected)


def test_draws_follow_the_generator() -> None:
    first, again, other = (
        draw_batch(make_task("selective"), "shifted", 128, "train", 4, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.token_ids, again.token_ids)
    assert torch.equal(first.position_ids, again.position_ids)
    assert not torch.equal(first.token_ids, other.token_ids)


@pytest.mark.parametrize(("n_pos", "warmup"), [(50, 10), (50, 1000), (64, 7), (3, 5)])
def test_rows_grow_from_a_few_tokens_to_their_whole_length(n_pos: int, warmup: int) -> None:
    lengths = [grown_length(step, warmup, n_pos) for step in range(2 * warmup)]
    assert lengths == sorted(lengths)
    assert lengths[warmup - 1 :] == [n_pos] * (warmup + 1)
    assert min(SHORTEST_ROW, n_pos) <= lengths[0] <= min(n_pos, SHORTEST_ROW + math.ceil(n_pos / warmup))
    assert {grown_length(step, None, n_pos) for step in range(warmup)} == {n_pos}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_causal_counter_learns_the_same_from_the_beginning_of_a_row_as_from_the_row_with_the_rest_unscored(
    family: str, generator: torch.Generator
) -> None:
    task = make_task("selective_mod4")
    cfg = FAMILIES[family].config(task.vocab.size, max_position=130, n_layers=2, **SIZES.get(family, {"d_model": 8}))
    counter = build_counter(cfg, torch.Generator().manual_seed(0)).double()
    whole = draw_tokens(counter, task, "shifted", "train", 4, generator)
    labels = whole.batch.label_ids.clone()
    labels[:, 9:] = NOT_SCORED
    unscored = replace(whole, batch=replace(whole.batch, label_ids=labels))
    gradients = []
    for tokens in (whole.beginnings(9), unscored):
        loss = loss_of(counter(tokens.batch.token_ids, tokens.batch.position_ids), tokens)
        gradients.append(torch.autograd.grad(loss, [*counter.parameters()]))
    for cut, rest_unscored in zip(*gradients, strict=True):
        torch.testing.assert_close(cut, rest_unscored, rtol=1e-5, atol=1e-7)
