"""A scheme is one entry and its function: ALiBi's bias is in every forward path, and everything knows it."""

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from app.cli import main
from app.figures.style import colour_of
from models import (
    CountLensError,
    TransformerConfig,
    build_counter,
    hook_name,
    load_counter,
    save_counter,
    to_transformer_lens,
)
from models.schemes import SCHEMES
from models.transformer import Transformer
from probes.reading.attention_scores import exact_moments

ENGINE = runpy.run_path(str(Path(__file__).parents[1] / "probes/patching/test_engine.py"))
N_HEADS = 4
SLOPES = [2 ** (-8 * head / N_HEADS) for head in range(1, N_HEADS + 1)]


def lively(causal: bool = True, position: str = "alibi", **sizes: int) -> Transformer:
    """A counter in float64 whose weights are so large that a mistake shows."""
    generator = torch.Generator().manual_seed(1)
    cfg = TransformerConfig(13, position, N_HEADS, 32, causal=causal, **{"n_layers": 2, "d_model": 16} | sizes)
    counter = build_counter(cfg, generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    assert isinstance(counter, Transformer)
    return counter.double().eval()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, position ids with gaps that differ between rows, and padding at the end of a row."""
    generator = torch.Generator().manual_seed(2)
    token_ids = torch.randint(0, 13, (3, 9), generator=generator)
    steps = torch.randint(1, 4, (3, 9), generator=generator)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, 7:] = False
    return token_ids, steps.cumsum(1), mask


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor, ids: Tensor, mask: Tensor, causal: bool, layer: int) -> Tensor:
    """z, one row, head and query at a time, as the paper of ALiBi writes it (and divided by the layer, as here)."""
    z = torch.zeros_like(q)
    for row in range(len(q)):
        keys = [key for key in range(q.shape[1]) if mask[row, key]]
        for query in range(q.shape[1]):
            seen = [key for key in keys if key <= query or not causal]
            for head, slope in enumerate(SLOPES):
                scores = [
                    float(q[row, query, head] @ k[row, key, head]) / (q.shape[-1] ** 0.5 * (layer + 1))
                    - slope * abs(int(ids[row, query]) - int(ids[row, key]))
                    for key in seen
                ]
                weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
                z[row, query, head] = weights @ v[row, seen, head]
    return z


@pytest.mark.parametrize("causal", [True, False])
def test_fused_explicit_and_resumed_attention_are_that_by_hand(causal: bool) -> None:
    counter = lively(causal)
    token_ids, position_ids, mask = inputs()
    with torch.no_grad():
        fused = counter(token_ids, position_ids, mask)
        explicit, cache = counter.run_with_cache(token_ids, position_ids, mask)
        torch.testing.assert_close(explicit, fused, atol=1e-10, rtol=0)
        for layer in range(2):
            q, k, v, z = (cache[hook_name(kind, layer)] for kind in ("q", "k", "v", "z"))
            expected = attention_by_hand(q, k, v, position_ids, mask, causal, layer)
            torch.testing.assert_close(z, expected, atol=1e-10, rtol=0)
        first = 4 if causal else 0
        resid = cache["resid_pre", 1][:, first:].repeat(2, 1, 1)
        for reads in (None, torch.tensor([5, 8])):
            resumed = counter.run_from(1, first, resid, position_ids, cache, mask, reads)
            at = range(first, 9) if reads is None else reads.tolist()
            torch.testing.assert_close(resumed, fused[:, list(at)].repeat(2, 1, 1), atol=1e-10, rtol=0)
    nope = lively(causal, "nope")
    nope.load_state_dict(counter.state_dict())
    assert (nope(token_ids, position_ids, mask) - fused).abs().max() > 1e-2  # the bias matters


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sweep", ["resid_pre", *(f"attn_head_{kind}_by_pos" for kind in ("q", "k", "pattern", "out"))])
def test_patched_runs_are_those_of_transformer_lens_loop_of_whole_runs(sweep: str, causal: bool) -> None:
    counter = ENGINE["lively"](position="alibi", causal=causal, n_heads=2)
    ours, theirs = ENGINE["both_ways"](counter, sweep)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert theirs.std() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
def test_a_bias_beside_an_added_table_is_in_the_exact_moments(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "both", replace(SCHEMES["ape"], bias="alibi_bias"))
    counter = lively(causal, "both", max_position=6)
    tokens = torch.tensor([1, 5])
    rows = torch.cartesian_prod(tokens, tokens)  # source, target
    # Scores are relative to the mean key, which is 0 with this b_K, and to the mean bias over the keys of a query.
    every = torch.cartesian_prod(tokens, torch.arange(6))
    _, cache = counter.run_with_cache(every[:, :1], every[:, 1:], names_filter=hook_name("k", 0))
    with torch.no_grad():
        counter.blocks[0].attn.b_K -= cache["k", 0].mean((0, 1))
    scores = []
    for s in range(6):
        seen = torch.arange(s + 1 if causal else 6)
        bias = -torch.tensor(SLOPES, dtype=torch.float64) * (s - seen).abs().double().mean()  # softmax cancels it
        for t in seen.tolist():
            ids = rows.flip(1), torch.tensor([[t, s]]).expand(4, -1)
            _, cache = counter.run_with_cache(*ids, names_filter=hook_name("attn_scores", 0))
            pair = cache["attn_scores", 0][:, :, 1, 0] - bias
            scores.append(pair.unflatten(0, (2, 2)).permute(2, 0, 1))
    moments, by_pair = exact_moments(counter, tokens), torch.stack(scores)
    torch.testing.assert_close(torch.from_numpy(moments.mean), by_pair.mean(0), atol=1e-9, rtol=0)
    torch.testing.assert_close(torch.from_numpy(moments.std), by_pair.std(0, correction=0), atol=1e-9, rtol=0)


def test_it_learns_comes_back_and_is_listed(tmp_path: Path, countlens: Callable[..., str]) -> None:
    what = "--task first_tok_heterogeneous --position alibi --train-length 5 --ood-length 10 --d-model 32 --n-heads 2"
    how = "--steps 100 --lr 0.01 --warmup-steps 5 --eval-every 50 --eval-rows 32 --quiet"
    assert "alibi, 1 layer" in countlens("train", *what.split(), *how.split(), "--out", tmp_path / "run")
    (line,) = json.loads(countlens("list", tmp_path, "--json"))
    assert (line["family"], line["scheme"]) == ("transformer", "alibi")
    assert line["ind"] > 95
    assert json.loads(countlens("eval", tmp_path / "run", "--json"))["ind"] > 95
    said = countlens("report", tmp_path / "run", "--out", tmp_path, "--quiet", "--probes", "patching", "attention")
    assert "alibi sees distances alone" in said
    assert "alibi: at layer 0" in said
    assert colour_of("alibi") == SCHEMES["alibi"].colour


def test_transformer_lens_cannot_hold_it_and_that_is_said(tmp_path: Path) -> None:
    counter = lively().float()
    with pytest.raises(CountLensError, match="TransformerLens has no Transformer with alibi positions"):
        to_transformer_lens(counter)
    save_counter(tmp_path / "model.safetensors", counter)
    loaded = load_counter(tmp_path)
    assert loaded.info.transformer_lens is None
    token_ids, position_ids, _ = inputs()
    torch.testing.assert_close(loaded(token_ids, position_ids), counter(token_ids, position_ids), atol=1e-5, rtol=0)
    for form in ("hooked-transformer", "bridge"):
        with pytest.raises(SystemExit):
            main(["export", str(tmp_path), str(tmp_path / form), "--format", form])
        assert not (tmp_path / form).exists()
