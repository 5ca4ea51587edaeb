"""Attention over one written row: the scores that the counter itself computes."""

import numpy as np
import pytest
import torch

from models import CountLensError, load_counter
from probes.reading.attention_row import attention_row
from probes.result import NotApplicable, task_of_counter

ROW = "<bos> 3 1 3 2"


def test_scores_and_pattern_are_those_of_the_counter() -> None:
    counter = load_counter("selective-bos/rope-1L")
    found = attention_row(counter, ROW, layer=0, shift=7)
    assert found.tokens == tuple(ROW.split())
    assert found.position_ids == (7, 8, 9, 10, 11)
    token_ids = torch.tensor([task_of_counter(counter)[0].vocab.encode(ROW.split())])
    _, cache = counter.run_with_cache(token_ids, torch.arange(7, 12)[None])
    np.testing.assert_allclose(found.scores, cache["attn_scores", 0][0].detach(), atol=1e-5)
    np.testing.assert_allclose(found.pattern, cache["pattern", 0][0].detach(), atol=1e-6)
    np.testing.assert_allclose(found.pattern.sum(-1), 1)
    np.testing.assert_array_equal(found.head(2).scores, found.scores[2:3])


def test_the_table_has_what_a_query_can_see() -> None:
    frame = attention_row(load_counter("mod10/ape-2L"), "a a a", layer=1).to_frame()
    assert len(frame) == 2 * (1 + 2 + 3)
    assert (frame["key"] <= frame["query"]).all()
    np.testing.assert_allclose(frame.groupby(["head", "query"]).pattern.sum(), 1)
    both_ways = attention_row(load_counter("first_tok_heterogeneous/nope-1L-noncausal"), "0 1", layer=0).to_frame()
    assert len(both_ways) == 4


def test_the_verdict_weighs_the_first_token_against_even_shares() -> None:
    found = attention_row(load_counter("mod10-bos/rope-2L"), "<bos> a a a", layer=0)
    first = 100 * found.pattern[:, 1:, 0].mean()
    own = 100 * np.mean([found.pattern[:, place, place] for place in (1, 2, 3)])
    assert f"first one {first:.0f} % of its attention and itself {own:.0f} %" in found.verdict.sentence
    assert (
        f"evenly distributed attention would give {100 * (1 / 2 + 1 / 3 + 1 / 4) / 3:.0f} %" in found.verdict.sentence
    )


def test_what_is_not_there_is_refused() -> None:
    counter = load_counter("mod10/ape-2L")
    with pytest.raises(NotApplicable, match="LSTM has no attention"):
        attention_row(load_counter("mod10/lstm-1L"), "a a", layer=0)
    with pytest.raises(CountLensError, match=r"layer 2 is outside 0\.\.1"):
        attention_row(counter, "a a", layer=2)
    with pytest.raises(CountLensError, match=r"head 2 is outside 0\.\.1"):
        attention_row(counter, "a a", layer=0).head(2)
    with pytest.raises(CountLensError, match="write two or more"):
        attention_row(counter, "a", layer=0)
