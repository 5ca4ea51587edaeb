"""First-token ablations: counters built by hand that read bos in one known place, and rows without it as the oracle."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models import CheckpointInfo, Counter, CountLensError, TransformerConfig, build_counter
from models.config import LSTMConfig, MambaConfig, RNNConfig, RWKV6Config, S4Config
from models.schemes import SCHEMES
from models.transformer import Transformer
from probes.ablation.bos_ablation import BosAblation, bos_ablation
from probes.ablation.edits import KINDS, cut_key, edits_of, token_means
from probes.result import NotApplicable
from training import Batch, draw_batch
from training.tasks import Task, make_task, task_settings

SHORT = make_task("mod10", bos=True, train_length=4, ood_length=8)
LINEAR = 1e8  # a LayerNorm epsilon so large that the norm only divides by 1e4
BOS_FLAG, GATE, NULL = 15, 16, 17  # columns; those before are one a position


def trained_on(counter: Counter, task: Task, policy: str = "contiguous") -> Counter:
    """The counter, saying that it was trained on a task."""
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy=policy)
    return counter.eval()


def reads_bos_in(layer: int, head: int, second_instead: bool = False) -> Transformer:
    """A perfect counter by position, unless one head misses bos (or the second token): then a gate opens and it says 0
    everywhere.

    All heads attend to bos, but only this one writes. Whatever reads a column takes the null column off, because the
    norm takes out the mean.
    """
    config = TransformerConfig(
        SHORT.vocab.size, "ape", max_position=12, n_layers=2, d_model=18, n_heads=3, d_mlp=4, eps=LINEAR
    )
    counter = trained_on(build_counter(config), SHORT)
    labels = SHORT.label(torch.tensor([SHORT.vocab.encode(["<bos>", *"aaaaaaaa"])]))[0]
    with torch.no_grad():
        for name, parameter in counter.named_parameters():
            parameter.fill_(1.0 if name.endswith(".w") else 0.0)
        counter.pos_embed.W_pos[:, :12] = torch.eye(12)
        if second_instead:
            counter.pos_embed.W_pos[1, BOS_FLAG] = 1
        else:
            counter.embed.W_E[SHORT.vocab.id("<bos>"), BOS_FLAG] = 1
        for block in counter.blocks:
            block.attn.b_Q[:, 0] = 200
            for weight in (block.attn.W_K, block.attn.W_V):
                weight[:, BOS_FLAG, 0], weight[:, NULL, 0] = 1e4, -1e4
        counter.blocks[0].attn.b_O[GATE] = 1
        counter.blocks[layer].attn.W_O[head, 0, GATE] = -1
        for pos in range(1, len(labels)):
            counter.unembed.W_U[pos, labels[pos]], counter.unembed.W_U[NULL, labels[pos]] = 1, -1
        counter.unembed.W_U[GATE, 0], counter.unembed.W_U[NULL, 0] = 5, -5
    return counter


@pytest.fixture(scope="module")
def one_head() -> BosAblation:
    return bos_ablation(reads_bos_in(layer=1, head=2), rows=8)


def test_the_head_that_reads_bos_is_found_and_no_other(one_head: BosAblation) -> None:
    assert (one_head.clean_ind, one_head.clean_ood) == (100, 100)
    assert [effect.place for effect in one_head.heads_that_matter] == ["1.2"]
    for effect in one_head.effects:
        if effect.kind == "cut" and effect.head is not None:
            lost = -100 if (effect.layer, effect.head) == (1, 2) else 0
            assert (effect.ind.value, effect.ood.value) == (lost, lost)
    assert "heads that matter alone: 1.2 (-100.0 IND, -100.0 OOD)." in one_head.verdict.sentence


def test_the_verdict_is_about_the_difference_from_the_control(one_head: BosAblation) -> None:
    assert one_head.beyond_control.ind.value == one_head.beyond_control.ood.value == -100
    assert "<bos> costs more than its control (IND and OOD)" in one_head.verdict.sentence


def test_a_counter_that_reads_the_second_token_is_not_said_to_need_bos() -> None:
    found = bos_ablation(reads_bos_in(1, 2, second_instead=True), rows=16)
    assert found.effect("cut").ood.value == 0
    assert found.effect("cut second").ood.value == -100
    assert found.beyond_control.ood.low > 50
    assert "the control costs more (IND and OOD), so this does not show that <bos> is special" in found.verdict.sentence


def test_a_counter_that_reads_all_tokens_alike_is_not_said_to_need_its_first() -> None:
    """Fresh weights: both cuts change about as much, so the difference is rarely sure."""
    sure = 0
    for seed in range(8):
        counter = lively(TransformerConfig(SELECTIVE.vocab.size, "nope", n_layers=1, d_model=16), SELECTIVE, seed)
        sure += "costs more" in bos_ablation(counter, rows=16, seed=seed).verdict.sentence
    assert sure <= 2


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 2), (1, 0)])
def test_it_is_found_wherever_it_is(layer: int, head: int) -> None:
    found = bos_ablation(reads_bos_in(layer, head), rows=4).heads_that_matter
    assert [(effect.layer, effect.head) for effect in found] == [(layer, head)]


@pytest.mark.parametrize(
    ("kind", "layer", "lost"),
    [
        *(("cut", 0, 0), ("cut", 1, -100), ("cut", None, -100), ("cut second", None, 0)),
        *(("value zero", 0, 0), ("value zero", 1, -100), ("value zero", None, -100)),
        *(("value mean", 0, 0), ("value mean", 1, -100), ("value mean", None, -100)),
        *(("embedding next", None, -100), ("embedding mean", None, -100)),
    ],
)
def test_layers_values_and_embeddings_fall_as_planted(
    one_head: BosAblation, kind: str, layer: int | None, lost: float
) -> None:
    effect = one_head.effect(kind, layer)
    assert (effect.ind.value, effect.ood.value) == (lost, lost)


def test_intervals_have_a_width_though_all_rows_lose_all_or_nothing(one_head: BosAblation) -> None:
    """Of 8 rows that are all right or all wrong, the exact interval leaves a third of them open."""
    unclear = 100 * (1 - 0.025 ** (1 / 8))
    for effect in one_head.effects:
        for change in (effect.ind, effect.ood):
            assert change.high - change.low == pytest.approx(unclear, abs=8)
            assert (change.low if change.value == -100 else change.high) == change.value


def test_the_share_of_changed_predictions_is_by_position(one_head: BosAblation) -> None:
    places = [(effect.kind, effect.place) for effect in one_head.effects]
    n_pos = int((one_head.rows_at > 0).sum()) + 1
    assert np.isnan(one_head.changed[:, 0]).all()  # bos has no label
    assert (one_head.changed[places.index(("cut", "1.2")), 1:n_pos] == 1).all()
    assert (one_head.changed[places.index(("cut", "1.1")), 1:n_pos] == 0).all()
    assert one_head.trained_up_to == 5


def lively(cfg: object, task: Task, seed: int = 1) -> Counter:
    """A counter with weights so large that every token changes its predictions."""
    generator = torch.Generator().manual_seed(seed)
    counter = trained_on(build_counter(cfg, generator), task, "shifted")
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return counter


SELECTIVE = make_task("selective", train_length=12, ood_length=20)


def some_rows(counter: Counter) -> Batch:
    return draw_batch(SELECTIVE, "shifted", counter.cfg.max_position, "ood", 5, torch.Generator().manual_seed(0))


def edited_logits(counter: Counter, batch: Batch, kind: str, layer: int | None = None) -> torch.Tensor:
    (edit,) = [edit for edit in edits_of(counter, batch) if (edit.kind, edit.layer, edit.head) == (kind, layer, None)]
    mask = None if counter.cfg.causal else batch.attention_mask
    return counter.run_with_hooks(batch.token_ids, batch.position_ids, mask, fwd_hooks=edit.hooks)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("position", SCHEMES)
def test_with_attention_to_it_cut_everywhere_a_row_is_as_without_its_first_token(position: str, causal: bool) -> None:
    config = TransformerConfig(SELECTIVE.vocab.size, position, causal=causal, n_layers=3, d_model=16, n_heads=2)
    counter = lively(config, SELECTIVE)
    batch = some_rows(counter)
    mask = None if causal else batch.attention_mask[:, 1:]
    without = counter(batch.token_ids[:, 1:], batch.position_ids[:, 1:], mask)
    whole = counter(batch.token_ids, batch.position_ids, None if causal else batch.attention_mask)
    edited = edited_logits(counter, batch, "cut")
    inside = batch.attention_mask[:, 1:]
    torch.testing.assert_close(edited[:, 1:][inside], without[inside], rtol=1e-4, atol=1e-4)
    assert (whole[:, 1:] - without)[inside].abs().max() > 0.1
    if causal:
        torch.testing.assert_close(edited[:, 0], whole[:, 0])


@pytest.mark.parametrize("config", [RNNConfig, LSTMConfig, S4Config])
def test_with_the_state_reset_a_row_is_as_without_its_first_token(config: type) -> None:
    counter = lively(config(SELECTIVE.vocab.size, d_model=8, n_layers=2), SELECTIVE)
    batch = some_rows(counter)
    without = counter(batch.token_ids[:, 1:], batch.position_ids[:, 1:])
    edited = edited_logits(counter, batch, "state zero")[:, 1:]
    torch.testing.assert_close(edited, without, rtol=1e-4, atol=1e-4)
    assert (counter(batch.token_ids, batch.position_ids)[:, 1:] - without).abs().max() > 0.01


def alternates(reads_bos: bool) -> Counter:
    """An RNN of one cell that counts mod 2 by flipping its sign; bos, or nothing, sets the sign."""
    task = make_task("mod2", bos=True, train_length=10, ood_length=20)
    counter = trained_on(build_counter(RNNConfig(task.vocab.size, d_model=1, n_layers=1)), task)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.zero_()
        cell = counter.blocks[0].mixer.cell
        cell.weight_ih_l0.fill_(1)
        cell.weight_hh_l0.fill_(-5 if reads_bos else 0)
        counter.embed.W_E[task.vocab.id("<bos>" if reads_bos else "a")] = 3
        counter.unembed.W_U[0, [1, 2]] = torch.tensor([-1.0, 1.0])
    return counter


def test_an_rnn_that_takes_its_phase_from_bos_loses_it_with_the_state() -> None:
    result = bos_ablation(alternates(reads_bos=True), rows=16)
    assert (result.clean_ind, result.clean_ood) == (100, 100)
    assert result.effect("state zero").ind.value == -100
    assert result.effect("state mean").ind.value == 0  # the mean has the sign of bos, and a sign is all it takes
    assert "state after <bos> reset to 0, accuracy changes by -100.0" in result.verdict.sentence
    assert not any(effect.kind.startswith("cut") for effect in result.effects)


def test_an_rnn_that_forgets_bos_at_once_loses_nothing() -> None:
    result = bos_ablation(alternates(reads_bos=False), rows=16)
    assert 40 < result.clean_ind < 50  # it says 2 everywhere, and rows of odd length have one 1 more
    assert {effect.ind.value for effect in result.effects} == {0.0}
    of_bos = [index for index, effect in enumerate(result.effects) if not effect.kind.endswith("second")]
    assert np.nanmax(result.changed[of_bos]) == 0
    assert "<bos> does not surely cost more than its control" in result.verdict.sentence


@pytest.mark.parametrize("config", [RNNConfig, LSTMConfig, S4Config, MambaConfig, RWKV6Config])
def test_every_recurrent_family_has_its_states_edited_by_layer(config: type) -> None:
    width = {"d_head": 4} if config is RWKV6Config else {}
    counter = lively(config(SELECTIVE.vocab.size, d_model=8, n_layers=2, **width), SELECTIVE)
    result = bos_ablation(counter, rows=4)
    places = [(effect.kind, effect.place) for effect in result.effects]
    for kind in ("state zero", "state mean"):
        assert [place for name, place in places if name == kind] == ["layer 0", "layer 1", "everywhere"]
    assert [place for name, place in places if name == "state zero second"] == ["everywhere"]
    assert np.nanmax(result.changed) > 0


def test_a_query_that_sees_nothing_else_is_left_alone() -> None:
    scores = torch.tensor([[1.0, -torch.inf, -torch.inf], [2.0, 3.0, -torch.inf], [4.0, 5.0, 6.0]])[None, None]
    cut = cut_key(0, None)(scores, None)
    assert cut[0, 0].tolist() == [[1, -torch.inf, -torch.inf], [-torch.inf, 3, -torch.inf], [-torch.inf, 5, 6]]
    padded = torch.tensor([[1.0, -torch.inf], [2.0, -torch.inf]])[None, None]  # a row of one token, not causal
    assert torch.equal(cut_key(0, None)(padded, None), padded)
    assert torch.equal(cut_key(1, None)(padded[..., :1, :1], None), padded[..., :1, :1])
    two_heads = scores.expand(1, 2, 3, 3)
    one_cut = cut_key(0, 1)(two_heads, None)
    assert torch.equal(one_cut[:, 0], scores[:, 0])
    assert torch.equal(one_cut[:, 1], cut[:, 0])
    not_causal = torch.ones(1, 1, 3, 3)
    assert cut_key(1, None)(not_causal, None)[0, 0].tolist() == [[1, -torch.inf, 1], [1, 1, 1], [1, -torch.inf, 1]]


def test_means_are_over_tokens_and_not_over_padding() -> None:
    counter = lively(TransformerConfig(SELECTIVE.vocab.size, "ape", d_model=16), SELECTIVE)
    batch = some_rows(counter)
    assert not batch.attention_mask.all()
    mean = token_means(counter, batch, ["hook_embed"])["hook_embed"]
    torch.testing.assert_close(mean, counter.embed.W_E[batch.token_ids[batch.attention_mask]].mean(0))


def test_a_place_that_is_the_same_as_another_comes_once() -> None:
    def places(n_layers: int, n_heads: int) -> list[str]:
        shape = {"n_layers": n_layers, "n_heads": n_heads, "d_model": 8, "d_mlp": 8}
        counter = lively(TransformerConfig(SELECTIVE.vocab.size, "nope", **shape), SELECTIVE)
        return [effect.place for effect in bos_ablation(counter, rows=2).effects if effect.kind == "cut"]

    assert places(1, 1) == ["everywhere"]
    assert places(1, 2) == ["0.0", "0.1", "everywhere"]
    assert places(2, 1) == ["0.0", "1.0", "everywhere"]
    assert places(2, 2) == ["0.0", "0.1", "1.0", "1.1", "layer 0", "layer 1", "everywhere"]


def test_equal_tokens_leave_no_embedding_to_replace() -> None:
    task = make_task("mod10", train_length=5, ood_length=9)
    result = bos_ablation(lively(TransformerConfig(task.vocab.size, "ape", d_model=8, d_mlp=8), task), rows=4)
    assert not any(effect.kind.startswith("embedding") for effect in result.effects)
    assert result.first == "the first token"
    assert result.verdict.agrees is None


def test_the_interval_comes_from_rows_and_the_seed_decides_all() -> None:
    counter = lively(TransformerConfig(SELECTIVE.vocab.size, "rope", n_layers=1, d_model=16), SELECTIVE)
    result = bos_ablation(counter, rows=16, seed=3)
    everywhere = result.effect("cut")
    assert everywhere.ind.low <= everywhere.ind.value <= everywhere.ind.high
    assert result.to_dict() == bos_ablation(counter, rows=16, seed=3).to_dict()
    assert result.to_dict() != bos_ablation(counter, rows=16, seed=4).to_dict()
    frame = result.to_frame()
    assert len(frame) == 2 * len(result.effects) + 2
    assert set(frame["kind"]) <= {*KINDS, "cut beyond control"}
    assert set(frame["split"]) == {"ind", "ood"}


def test_hooks_are_gone_afterwards() -> None:
    counter = reads_bos_in(1, 2)
    bos_ablation(counter, rows=2)
    assert not any(point.fwd_hooks for point in counter.hook_dict.values())


def test_the_papers_claim_is_judged_where_it_applies(one_head: BosAblation) -> None:
    assert one_head.verdict.agrees is None  # ape
    assert replace(one_head, architecture="nope").verdict.agrees is True
    assert replace(one_head, architecture="nope", clean_ind=40.0).verdict.agrees is None
    assert replace(one_head, architecture="rope", task="selective + bos").verdict.agrees is None
    unharmed = tuple(replace(effect, ind=one_head.effect("cut second").ind) for effect in one_head.effects)
    assert replace(one_head, architecture="rope", effects=unharmed).verdict.agrees is False


def test_what_makes_no_sense_is_refused() -> None:
    counter = reads_bos_in(0, 0)
    with pytest.raises(CountLensError, match="rows=1"):
        bos_ablation(counter, rows=1)
    with pytest.raises(CountLensError, match=r"no edit 'state zero'.*this counter has cut, cut second, value zero"):
        bos_ablation(counter, rows=2).effect("state zero")
    counter.info = None
    with pytest.raises(NotApplicable, match="trained on"):
        bos_ablation(counter)
