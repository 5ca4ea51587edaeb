"""Attention-score variation: planted scores, a loop over sequences as the oracle, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter, hook_name
from models.config import RNNConfig
from models.schemes import SCHEMES
from models.transformer import Transformer
from probes.reading.attention_scores import exact_moments, occurring_pairs
from probes.reading.attention_variation import AttentionVariation, attention_variation, compare_variation
from probes.result import NotApplicable
from training import draw_batch
from training.tasks import Task, make_task, task_settings

N = 128  # PIDs
SELECTIVE = make_task("selective", bos=True)
LINEAR = 1e8  # a LayerNorm epsilon so large that the norm only divides by 1e4


def trained_on(counter: Transformer, task: Task, policy: str = "shifted") -> Transformer:
    """The counter, saying that it was trained on a task."""
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy=policy)
    return counter.eval()


def lively(position: str, task: Task = SELECTIVE, causal: bool = True, **settings: int) -> Transformer:
    """A counter with weights so large that positions and tokens both show in its scores."""
    generator = torch.Generator().manual_seed(1)
    shape = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_mlp": 8} | settings
    counter = build_counter(TransformerConfig(task.vocab.size, position, causal=causal, **shape), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return trained_on(counter, task)


def planted(position: str, reads_position: bool, causal: bool = True, n_layers: int = 1) -> Transformer:
    """A counter whose score in the last layer is (the target's number + its position feature) * scale.

    Token i has the number i in column 0; the position feature is the last column of W_pos. Other layers add nothing.
    """
    task = SELECTIVE
    config = TransformerConfig(
        task.vocab.size, position, d_model=4, n_heads=1, d_mlp=4, n_layers=n_layers, causal=causal, eps=LINEAR
    )
    counter = trained_on(build_counter(config), task)
    with torch.no_grad():
        for name, parameter in counter.named_parameters():
            parameter.fill_(1.0 if name.endswith(".w") else 0.0)
        counter.embed.W_E[:, 0] = torch.arange(task.vocab.size) / counter.embed.gain[0]
        if position == "ape":
            counter.pos_embed.W_pos[:, -1] = torch.arange(N) / N
        attn = counter.blocks[-1].attn
        # The norm takes the mean out of the columns, so what reads one of them must sum to 0.
        attn.W_K[0, :, 0] = 1e4 * torch.tensor([1.0, -1.0, 0.0, 0.0])
        if reads_position:
            attn.W_K[0, :, 0] += 1e4 * torch.tensor([0.0, -1.0, 0.0, 1.0])
        attn.b_Q[0, 0] = 1.0
    return counter


def relative(numbers: list[int]) -> np.ndarray:
    """Numbers of tokens, less their mean: scores are relative to the mean key."""
    return np.array(numbers) - np.mean(numbers)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("position", ["ape", "spe"])
def test_a_known_dependence_on_the_targets_position_has_the_closed_form_std(position: str, causal: bool) -> None:
    result = attention_variation(planted(position, reads_position=True, causal=causal))
    # t is uniform without the mask; with it, t has N - t sources.
    variance = (N - 1) * (N + 2) / 18 if causal else (N**2 - 1) / 12
    scale = 1 / np.sqrt(4)
    np.testing.assert_allclose(result.std, scale * np.sqrt(variance) / N, rtol=1e-4)
    mean = ((N - 1) / 3 if causal else (N - 1) / 2) / N - (N - 1) / 2 / N
    numbers = [SELECTIVE.vocab.id(token) for token in result.tokens]
    expected = np.broadcast_to(scale * (relative(numbers) + mean), result.mean[0, 0].shape)
    np.testing.assert_allclose(result.mean[0, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("position", ["nope", "ape", "spe"])
def test_scores_that_ignore_position_have_no_std(position: str) -> None:
    result = attention_variation(planted(position, reads_position=False))
    assert result.mean.max() > 2
    assert result.std.max() < 5 * 1e-5  # the last digits of single precision
    assert result.at(0).ratio < 1e-5


def test_sine_has_the_std_of_its_own_wave() -> None:
    counter = planted("sine", reads_position=False)
    with torch.no_grad():
        counter.embed.W_E.zero_()
        counter.blocks[0].attn.W_K[0, :, 0] = 1e4 * torch.tensor([1.0, 0.0, 0.0, -1.0])
    target = np.arange(N)
    wave = np.sin(target) - np.cos(target / 100)
    weights = N - target
    mean = np.average(wave, weights=weights)
    expected = np.sqrt(np.average((wave - mean) ** 2, weights=weights)) / 2
    np.testing.assert_allclose(attention_variation(counter).std, expected, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_rope_has_the_std_of_the_cosine_of_the_distance(causal: bool) -> None:
    counter = planted("rope", reads_position=False, causal=causal)
    with torch.no_grad():
        counter.blocks[0].attn.W_K.zero_()
        counter.blocks[0].attn.b_K[0, 0] = 3.0  # with b_Q: both in the plane that turns by 1 a position
    distance = np.arange(N)
    weights = (N - distance) * (1 if causal else np.where(distance == 0, 1, 2))
    score = 3 * np.cos(distance) / 2
    mean = np.average(score, weights=weights)
    expected = np.sqrt(np.average((score - mean) ** 2, weights=weights))
    np.testing.assert_allclose(attention_variation(counter).std, expected, rtol=1e-4)


def scores_in_a_loop(counter: Transformer, token_ids: torch.Tensor) -> torch.Tensor:
    """All scores [head, source, target, PID pair], from a run for each PID pair: rows of two tokens."""
    source, target = torch.meshgrid(token_ids, token_ids, indexing="ij")
    rows = torch.stack([target.flatten(), source.flatten()], 1)
    found = []
    for s in range(counter.cfg.max_position):
        for t in range(s + 1 if counter.cfg.causal else counter.cfg.max_position):
            position_ids = torch.tensor([t, s]).expand(len(rows), -1)
            _, cache = counter.run_with_cache(rows, position_ids, names_filter=hook_name("attn_scores", layer=0))
            found.append(cache["attn_scores", 0][:, :, 1, 0])
    scores = torch.stack(found).unflatten(1, source.shape).permute(3, 1, 2, 0) - mean_bias(counter)
    return scores if counter.scheme.rotary else scores - to_the_mean_key(counter, token_ids)


def mean_bias(counter: Transformer) -> torch.Tensor:
    """What the scheme adds to a source's scores on average over its targets: [head, 1, 1, PID pair], or 0."""
    pids = torch.arange(counter.cfg.max_position)[None]
    bias = counter.bias_at(pids, pids)
    if bias is None:
        return torch.zeros(())
    ends = [s + 1 if counter.cfg.causal else pids.shape[1] for s in range(pids.shape[1])]
    means = [bias[0, :, s, :end].mean(-1, keepdim=True).expand(-1, end) for s, end in enumerate(ends)]
    return torch.cat(means, -1)[:, None, None]


def to_the_mean_key(counter: Transformer, token_ids: torch.Tensor) -> torch.Tensor:
    """The score [head, source, 1, PID pair] of each source for the mean of all keys."""
    n = counter.cfg.max_position
    every = torch.cartesian_prod(token_ids, torch.arange(n))
    _, cache = counter.run_with_cache(every[:, :1], every[:, 1:])
    key = cache["k", 0][:, 0].mean(0)
    scores = (cache["q", 0][:, 0] * key).sum(-1).unflatten(0, (-1, n)) * counter.blocks[0].attn.score_scale
    sources = [s for s in range(n) for _ in range(s + 1 if counter.cfg.causal else n)]
    return scores[:, sources].permute(2, 0, 1)[:, :, None]


@pytest.mark.parametrize("position", ["nope", "sine", "ape", "spe"])
def test_what_softmax_cancels_is_no_variation(position: str) -> None:
    """A constant added to all keys moves scores by the source's place, and no answer."""
    counter, other = lively(position), lively(position)
    with torch.no_grad():
        for block in other.blocks:
            block.attn.b_K += 3 * torch.randn(block.attn.b_K.shape, generator=torch.Generator().manual_seed(2))
    token_ids = torch.arange(10)[None]
    torch.testing.assert_close(counter(token_ids, token_ids), other(token_ids, token_ids), rtol=1e-3, atol=1e-3)
    mine, theirs = attention_variation(counter), attention_variation(other)
    np.testing.assert_allclose(theirs.std, mine.std, rtol=1e-3, atol=1e-3)
    for layer in range(2):
        assert theirs.at(layer).ratio == pytest.approx(mine.at(layer).ratio, rel=1e-3)


@pytest.mark.parametrize("position", ["ape", "rope"])
def test_a_constant_for_each_query_is_no_variation(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias that falls with the distance, and the same without the part that all keys of a query share."""

    def by_distance(query_ids: torch.Tensor, key_ids: torch.Tensor) -> torch.Tensor:
        return 0.1 * (key_ids[:, None, None, :] - query_ids[:, None, :, None]).float().expand(-1, 2, -1, -1)

    def by_key(query_ids: torch.Tensor, key_ids: torch.Tensor) -> torch.Tensor:
        query = query_ids[:, None, :, None]
        return by_distance(query_ids, key_ids) + 0.1 * query + 3 * torch.sin(query.float())

    counter, ids = lively(position, max_position=16), torch.arange(8)[None]
    with monkeypatch.context() as patch:
        patch.setattr(counter, "bias_at", by_distance)
        mine, logits = attention_variation(counter, layer=0), counter(ids, ids)
        patch.setattr(counter, "bias_at", by_key)
        theirs, same = attention_variation(counter, layer=0), counter(ids, ids)
    torch.testing.assert_close(logits, same, rtol=1e-3, atol=1e-3)
    assert mine.std.min() > 0.01
    np.testing.assert_allclose(theirs.std, mine.std, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("position", SCHEMES)
def test_layer_0_equals_a_loop_over_sequences(position: str, causal: bool) -> None:
    counter = lively(position, causal=causal, max_position=9)
    token_ids = torch.tensor([0, 3, 7, SELECTIVE.vocab.id("<bos>")])
    scores = scores_in_a_loop(counter, token_ids)
    moments = exact_moments(counter, token_ids)
    np.testing.assert_allclose(moments.mean, scores.mean(-1).detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moments.std, scores.std(-1, correction=0).detach(), rtol=1e-5, atol=1e-5)
    if position != "nope":
        assert moments.std.min() > 0.005


def test_deeper_scores_are_divided_by_the_layer_number_too() -> None:
    result = attention_variation(planted("ape", reads_position=False, n_layers=3), layer=2)
    numbers = np.array([SELECTIVE.vocab.id(token) for token in result.tokens])
    plain = attention_variation(planted("ape", reads_position=False), layer=0)
    seen = np.isfinite(result.mean[0, 0])
    assert (seen == result.occurs).all()
    # Relative to each other, two targets differ by their numbers; what a row holds moves both.
    steps = np.diff(result.mean[0, 0][0, :10]).mean() / np.diff(plain.mean[0, 0][0, :10]).mean()
    assert steps == pytest.approx(1 / 3, rel=0.1)
    assert (numbers[:10] == np.arange(10)).all()


@pytest.mark.parametrize("causal", [True, False])
def test_deeper_layers_equal_a_loop_over_the_same_rows(causal: bool) -> None:
    counter = lively("rope", causal=causal)
    result = attention_variation(counter, layer=1, rows=3, seed=5)
    generator = torch.Generator().manual_seed(5)
    scores: dict[tuple[str, str], list[float]] = {}
    for split in ("ind", "ood"):
        batch = draw_batch(SELECTIVE, "shifted", 128, split, 3, generator)
        mask = None if causal else batch.attention_mask
        _, cache = counter.run_with_cache(batch.token_ids, batch.position_ids, mask)
        tokens = [SELECTIVE.vocab.decode(row.tolist()) for row in batch.token_ids]
        for row in range(3):
            row_scores, length = cache["attn_scores", 1][row, 1], int(batch.attention_mask[row].sum())
            for query in range(length):
                for key in range(query + 1 if causal else length):
                    pair = tokens[row][query], tokens[row][key]
                    centre = row_scores[query, : query + 1 if causal else length].mean()
                    scores.setdefault(pair, []).append((row_scores[query, key] - centre).item())
    for (source, target), values in scores.items():
        at = result.tokens.index(source), result.tokens.index(target)
        assert result.mean[0, 1][at] == pytest.approx(np.mean(values), abs=1e-5)
        assert result.std[0, 1][at] == pytest.approx(np.std(values), abs=1e-5)


def test_only_pairs_that_rows_hold_count_in_the_number() -> None:
    pairs = occurring_pairs(SELECTIVE, True, torch.Generator().manual_seed(0))
    tokens = SELECTIVE.vocab.decode(pairs.ids.tolist())
    assert tokens == [*"0123456789", "<bos>"]
    assert pairs.occurs[:-1].all()  # every kind sees every kind, and bos
    assert pairs.occurs[-1].tolist() == [False] * 10 + [True]  # bos sees itself alone
    assert occurring_pairs(SELECTIVE, False, torch.Generator().manual_seed(0)).occurs.all()
    shifted = make_task("shifted_start")
    pairs = occurring_pairs(shifted, True, torch.Generator().manual_seed(0))
    names = shifted.vocab.decode(pairs.ids.tolist())
    assert len(names) == 51
    assert pairs.occurs.sum() == 50 + 51  # each start sees itself, an a sees all


def test_tokens_are_chosen_by_name_and_a_foreign_one_never_occurs() -> None:
    everything = attention_variation(lively("ape"))
    result = attention_variation(lively("ape"), tokens=["<bos>", "4", "<pad>"])
    assert result.tokens == ("<bos>", "4", "<pad>")
    assert result.occurs.tolist() == [[True, False, False], [True, True, False], [False, False, False]]
    np.testing.assert_allclose(result.std[0, :, :2, :2], everything.std[0][:, [10, 4]][:, :, [10, 4]], rtol=1e-5)
    with pytest.raises(CountLensError, match="unknown token 'x'"):
        attention_variation(lively("ape"), tokens=["x"])
    with pytest.raises(CountLensError, match="no tokens"):
        attention_variation(lively("ape"), tokens=[])


def test_the_interval_holds_the_ratio_and_the_same_seed_gives_the_same() -> None:
    result = attention_variation(lively("ape"), seed=3)
    for summary in result.layers:
        assert 0 < summary.low < summary.ratio < summary.high
        assert summary.ratio == pytest.approx(summary.mean_std / summary.spread)
    assert attention_variation(lively("ape"), seed=3).to_dict() == result.to_dict()
    assert attention_variation(lively("ape"), seed=4).at(0).low != result.at(0).low
    assert attention_variation(lively("ape"), seed=4).at(0).ratio == result.at(0).ratio


def test_one_token_alone_leaves_nothing_to_compare_with() -> None:
    result = attention_variation(lively("ape", make_task("mod10")), layer=0)
    assert result.tokens == ("a",)
    assert np.isnan(result.at(0).ratio)
    assert "no different token pairs" in result.verdict.sentence


def test_the_table_has_a_line_for_each_head_and_pair() -> None:
    result = attention_variation(lively("rope"))
    frame = result.to_frame()
    assert len(frame) == 2 * 2 * 11 * 11
    line = frame.query("layer == 1 and head == 1 and source == '3' and target == '<bos>'").iloc[0]
    assert line["std"] == result.std[1, 1, 3, 10]
    assert result.to_dict()["verdict"]["agrees"] is None


def with_ratio(result: AttentionVariation, architecture: str, low: float, high: float) -> AttentionVariation:
    summary = replace(result.at(0), ratio=(low + high) / 2, low=low, high=high)
    return replace(result, architecture=architecture, layers=(summary,))


def test_a_comparison_agrees_with_the_paper_when_rope_is_clearly_above_ape() -> None:
    result = attention_variation(lively("nope"), layer=0)
    rope, ape, spe = (
        with_ratio(result, "rope", 0.4, 0.6),
        with_ratio(result, "ape", 0.1, 0.2),
        with_ratio(result, "spe", 0.5, 0.9),
    )
    both = compare_variation({"mine": rope, "theirs": ape})
    assert both.verdict.agrees is True
    assert "The largest is mine, as in the paper" in both.verdict.sentence
    assert compare_variation({"rope": with_ratio(result, "rope", 0.15, 0.6), "ape": ape}).verdict.agrees is False
    assert compare_variation({"rope": rope, "spe": spe}).verdict.agrees is None
    three = compare_variation({"rope": rope, "spe": spe, "ape": ape})
    assert "The largest is spe, where the paper has rope" in three.verdict.sentence
    assert three.to_frame()["ratio"].tolist() == pytest.approx([0.5, 0.7, 0.15])
    elsewhere = {name: replace(part, task="mod10") for name, part in (("rope", rope), ("ape", ape))}
    assert compare_variation(elsewhere).verdict.agrees is None
    with pytest.raises(CountLensError, match="nothing to compare"):
        compare_variation({})


def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    recurrent = build_counter(RNNConfig(10), torch.Generator().manual_seed(0))
    with pytest.raises(NotApplicable, match="RNN has no attention scores"):
        attention_variation(recurrent)
    with pytest.raises(CountLensError, match=r"layer 2 is outside 0\.\.1"):
        attention_variation(lively("ape"), layer=2)
    with pytest.raises(CountLensError, match="layer 1 was not measured"):
        attention_variation(lively("ape"), layer=0).at(1)
    nobody = lively("ape")
    nobody.info = None
    with pytest.raises(NotApplicable, match="trained on"):
        attention_variation(nobody)
