"""Position policies and batches."""

import pytest
import torch

from models import TransformerConfig, build_counter
from models.errors import CountLensError
from training.batches import draw_batch, merge_equal_rows
from training.loop import loss_of
from training.policies import POLICIES, get_policy
from training.tasks import make_task

LENGTHS = torch.tensor([50, 70, 100] * 2000)


def test_contiguous_positions_start_at_zero(generator: torch.Generator) -> None:
    ids = get_policy("contiguous")(LENGTHS, 100, 128, generator)
    assert torch.equal(ids, torch.arange(100).expand(len(LENGTHS), -1))


def test_shifted_positions_are_uniform_over_what_fits_the_row(generator: torch.Generator) -> None:
    ids = get_policy("shifted")(LENGTHS, 100, 128, generator)
    for length in (50, 70, 100):
        rows = ids[length == LENGTHS, :length]
        assert (rows.diff(dim=1) == 1).all()
        assert set(rows[:, 0].tolist()) == set(range(128 - length + 1))
        assert rows.max() == 127
        mean = rows[:, 0].float().mean().item()
        assert mean == pytest.approx((128 - length) / 2, abs=0.05 * 128)
    assert ids.max() == 127


def test_randomised_positions_are_sorted_different_and_reach_everywhere(generator: torch.Generator) -> None:
    ids = get_policy("randomised")(LENGTHS, 100, 128, generator)
    for length in (50, 70, 100):
        rows = ids[length == LENGTHS, :length]
        assert (rows.diff(dim=1) > 0).all()
        used = torch.bincount(rows.flatten(), minlength=128) / len(rows)
        assert (used - length / 128).abs().max() < 0.05  # every id is equally often used
    assert ids.shape == (len(LENGTHS), 100)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_row_as_long_as_the_positions_fits_exactly(policy: str, generator: torch.Generator) -> None:
    ids = get_policy(policy)(torch.tensor([128, 128]), 128, 128, generator)
    assert torch.equal(ids, torch.arange(128).expand(2, -1))


def test_an_unknown_policy_is_refused_with_the_near_ones() -> None:
    with pytest.raises(CountLensError, match="did you mean randomised"):
        get_policy("randomized")


@pytest.mark.parametrize(("task", "position"), [("mod10", "ape"), ("helper", "rope"), ("mod10", "nope")])
def test_merged_rows_give_the_same_loss_and_gradient(task: str, position: str, generator: torch.Generator) -> None:
    counting = make_task(task)
    counter = build_counter(TransformerConfig(counting.vocab.size, position), generator).double()
    batch = draw_batch(counting, "shifted", 128, "train", 64, generator)
    merged = merge_equal_rows(batch, counter.ignores_positions)
    assert len(merged.token_ids) < 64
    assert merged.weights.sum() == 64
    if position == "nope":
        assert len(merged.token_ids) == 1
    gradients = []
    for rows in (batch, merged):
        counter.zero_grad()
        logits = counter.train()(rows.token_ids, rows.position_ids).float()
        loss_of(logits, rows).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in counter.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-4)
    assert gradients[0].abs().max() > 1e-3


def test_loss_is_the_mean_over_scored_tokens(generator: torch.Generator) -> None:
    task = make_task("helper")
    batch = draw_batch(task, "shifted", 128, "train", 8, generator)
    logits = torch.randn(*batch.token_ids.shape, task.vocab.size, generator=generator)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.label_ids.flatten(), ignore_index=-1)
    torch.testing.assert_close(loss_of(logits, batch), expected)


def test_draws_follow_the_generator() -> None:
    first, again, other = (
        draw_batch(make_task("selective"), "shifted", 128, "train", 4, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.token_ids, again.token_ids)
    assert torch.equal(first.position_ids, again.position_ids)
    assert not torch.equal(first.token_ids, other.token_ids)
