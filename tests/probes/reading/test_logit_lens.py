"""Logit lens and attribution: a counter whose answer one known head writes, and sums that add up in every family."""

import json

import numpy as np
import pytest
import torch

from models import FAMILIES, CheckpointInfo, TransformerConfig, build_counter, hook_name
from models.counter import Counter
from models.schemes import SCHEMES
from models.transformer import Transformer
from probes.reading.logit_lens import LogitLens, logit_lens
from probes.result import NotApplicable
from training import draw_batch
from training.evaluate import predict
from training.tasks import make_task, task_settings
from training.tasks.base import Task

SMALL = make_task("mod10", train_length=12, ood_length=24)


def of_task(counter: Counter, task: Task = SMALL, policy: str = "shifted") -> Counter:
    counter.info = CheckpointInfo("", {}, task=task_settings(task), policy=policy)
    return counter.eval()


def lively(family: str, task: Task = SMALL, **settings: object) -> Counter:
    """A counter in which nothing is zero or one: biases, norms and all."""
    generator = torch.Generator().manual_seed(3)
    cfg = FAMILIES[family].config(task.vocab.size, n_layers=2, d_model=64, max_position=32, **settings)
    counter = build_counter(cfg, generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return of_task(counter, task)


def written_by(layer: int, head: int) -> Transformer:
    """A counter modulo 10, at positions 0, 1, 2, ..., of which this head alone copies the answer to where it is read.

    Columns 0 to 9 of the stream say the position mod 10, from the start; the head attends to the positions with the
    same rest and copies them to columns 10 to 19; the unembedding reads only those.
    """
    cfg = TransformerConfig(SMALL.vocab.size, "ape", n_layers=2, d_model=64, n_heads=4, max_position=32)
    counter = build_counter(cfg, torch.Generator().manual_seed(0))
    assert isinstance(counter, Transformer)
    rest = torch.eye(10)
    with torch.no_grad():
        for name, parameter in counter.named_parameters():
            if name.rsplit(".", 1)[-1].startswith(("W_", "b_")):
                parameter.zero_()
        counter.pos_embed.W_pos[:, :10] = rest[torch.arange(32) % 10]
        attention = counter.blocks[layer].attn
        attention.W_Q[head, :10, :10] = attention.W_K[head, :10, :10] = 2 * rest
        attention.W_V[head, :10, :10] = rest
        attention.W_O[head, :10, 10:20] = rest
        counter.unembed.W_U[10:20, 1:11] = rest
    return of_task(counter, policy="contiguous")


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 2), (1, 3)])
def test_the_planted_head_is_found_and_no_other(layer: int, head: int) -> None:
    found = logit_lens(written_by(layer, head), rows=8)
    assert found.ready_at == {"ind": f"L{layer} attn", "ood": f"L{layer} attn"}
    for split in ("ind", "ood"):
        assert found.accuracy[split].value[-1] == 100
        assert found.accuracy[split].value[: found.sites.index(f"L{layer} attn")].max() < 20
        part, share = found.largest(split)
        assert part == f"L{layer}H{head}"
        assert share == pytest.approx(1, abs=1e-4)
        others = [
            value for name, value in zip(found.parts, found.attribution[split].value, strict=True) if name != part
        ]
        assert max(abs(value) for value in others) < 1e-4
        assert found.margin[split] > 1
    assert f"read from L{layer} attn on; L{layer}H{head} adds most to their margin (100%)" in found.verdict.sentence


def test_a_head_that_is_cut_is_found_no_more() -> None:
    counter = written_by(1, 2)
    with counter.hooks(fwd_hooks=[(hook_name("z", layer=1), lambda z, hook: z * 0)]):
        found = logit_lens(counter, rows=8)
    assert found.ready_at == {"ind": None, "ood": None}
    assert "no better than a constant one" in found.verdict.sentence


CASES = [("transformer", {"position": position}) for position in SCHEMES]
CASES += [("transformer", {"position": "nope", "causal": False}), ("s4", {}), ("mamba", {}), ("rwkv6", {})]


@pytest.mark.parametrize(("family", "settings"), CASES, ids=str)
def test_the_parts_add_up_to_the_margin_and_the_lens_ends_with_the_answers(
    family: str, settings: dict[str, object]
) -> None:
    counter = lively(family, **settings)
    found = logit_lens(counter, rows=24, seed=2)
    assert found.worst_error < 1e-4
    for split in ("ind", "ood"):
        batch = draw_batch(SMALL, "shifted", 32, split, 24, torch.Generator().manual_seed(2))
        scored = SMALL.scored(split, batch.label_ids)
        percent = 100 * float(((predict(counter, batch) == batch.label_ids) & scored).sum() / scored.sum())
        assert found.attribution[split].value.sum() == pytest.approx(found.margin[split], abs=1e-4)
        assert found.attribution[split].value.std() > 1e-3
        assert found.accuracy[split].value[-1] == pytest.approx(percent, abs=1e-3)
    assert len(found.parts) == len(found.attribution["ind"].value)
    assert len(found.sites) == len(found.accuracy["ind"].value) == len(found.by_position)


@pytest.mark.parametrize(
    ("family", "sites"),
    [
        ("transformer", ("embed", "L0 attn", "L0 mlp", "L1 attn", "L1 mlp")),
        ("rwkv6", ("embed", "L0 time mix", "L0 channel mix", "L1 time mix", "L1 channel mix")),
        ("mamba", ("embed", "L0 block", "L1 block")),
    ],
)
def test_sites_are_named_by_what_the_family_has(family: str, sites: tuple[str, ...]) -> None:
    assert logit_lens(lively(family), rows=4).sites == sites


def test_the_sum_is_wrong_without_the_final_norm_s_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "final_gain", torch.ones(64))
    assert logit_lens(lively("transformer", position="ape"), rows=4).worst_error > 1e-2


def test_a_margin_is_the_right_logit_less_the_mean_of_the_other_answers() -> None:
    """Answers are the ten counts, not the other words of the vocabulary."""
    counter = lively("transformer", position="nope")
    token_ids = torch.full((1, 12), SMALL.vocab.id("a"))
    logits = counter(token_ids, torch.arange(12)[None])[0]
    labels = SMALL.label(token_ids)[0]
    margins = [
        float(logits[pos, label] - logits[pos, [k for k in range(1, 11) if k != label]].mean())
        for pos, label in enumerate(labels.tolist())
    ]
    lengths = draw_batch(SMALL, "shifted", 32, "ind", 4, torch.Generator().manual_seed(0)).attention_mask.sum(1)
    expected = np.mean([margin for length in lengths.tolist() for margin in margins[:length]])
    assert logit_lens(counter, rows=4, seed=0).margin["ind"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["rnn", "lstm"])
def test_families_without_a_residual_stream_are_left_out_with_the_reason(family: str) -> None:
    with pytest.raises(NotApplicable, match=f"{family} has no residual stream"):
        logit_lens(lively(family))


def test_an_untrained_counter_reads_no_better_than_a_constant_answer() -> None:
    task = make_task("selective", train_length=12, ood_length=24)
    found = logit_lens(lively("transformer", task, position="rope"), rows=32)
    assert found.ready_at == {"ind": None, "ood": None}


def test_positions_are_read_on_both_sides_of_the_border() -> None:
    counter = written_by(0, 1)
    with torch.no_grad():  # from the 19th position on it is one ahead
        counter.pos_embed.W_pos[18:] = counter.pos_embed.W_pos[18:].roll(-1, 0)
    found = logit_lens(counter, rows=200)
    assert found.trained_up_to == 12
    assert found.by_position.shape == (5, 24)
    assert found.by_position[-1].tolist() == [100.0] * 18 + [0.0] * 6
    assert found.by_position[0].tolist() != found.by_position[-1].tolist()


def test_the_same_seed_gives_the_same_json_and_the_table_has_every_measure() -> None:
    counter = lively("transformer", position="ape")
    first: LogitLens = logit_lens(counter, rows=6, seed=1)
    assert json.dumps(first.to_dict()) == json.dumps(logit_lens(counter, rows=6, seed=1).to_dict())
    frame = first.to_frame()
    assert set(frame.measure) == {"accuracy", "probability", "attribution"}
    assert frame[(frame.measure == "probability")].value.between(0, 1).all()
    assert (frame.low <= frame.value + 1e-9).all()
    assert (frame.value <= frame.high + 1e-9).all()
