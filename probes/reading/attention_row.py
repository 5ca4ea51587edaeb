"""The attention of one layer over one row: its scores, before and after the softmax.

A *query* is the token that attends, a *key* a token that is attended to. Scores are those of `hook_attn_scores`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import softmax
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError
from models.hooks import hook_name
from models.transformer import Transformer
from probes.reading.answers import predict_tokens
from probes.result import NotApplicable, Result, Verdict
from probes.sites import check_layer


@dataclass(frozen=True)
class AttentionRow(Result):
    """One layer's attention over one row."""

    tokens: tuple[str, ...]
    position_ids: tuple[int, ...]
    layer: int
    scores: Float[np.ndarray, "head query key"]  # -inf at keys that a query cannot see

    @property
    def pattern(self) -> Float[np.ndarray, "head query key"]:
        """The share of a query's attention that each key gets."""
        return softmax(self.scores.astype(np.float64), axis=-1)

    def head(self, head: int) -> "AttentionRow":
        """The same result with one head only."""
        if not 0 <= head < len(self.scores):
            raise CountLensError(f"head {head} is outside 0..{len(self.scores) - 1}: this counter has no such head")
        return AttentionRow(self.tokens, self.position_ids, self.layer, self.scores[head : head + 1])

    @property
    def verdict(self) -> Verdict:
        later = self.pattern[:, 1:]
        first, own = 100 * later[..., 0].mean(), 100 * np.diagonal(later, 1, 1, 2).mean()
        even = 100 * np.mean([1 / np.isfinite(query).sum() for query in self.scores[0, 1:]])
        return Verdict(
            f"At layer {self.layer} a token gives the first one {first:.0f} % of its attention and itself {own:.0f} %; "
            f"evenly distributed attention would give {even:.0f} %.",
            "other tokens, or another shift",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per head, query and key that the query can see; positions count from 1."""
        head, query, key = np.nonzero(np.isfinite(self.scores))
        tokens, pids = np.array(self.tokens), np.array(self.position_ids)
        columns = {"layer": self.layer, "head": head, "query": query + 1, "key": key + 1}
        columns |= {"query_token": tokens[query], "key_token": tokens[key]}
        columns |= {"query_pid": pids[query], "key_pid": pids[key]}
        columns |= {"score": self.scores[head, query, key], "pattern": self.pattern[head, query, key]}
        return pd.DataFrame(columns)


def attention_row(counter: Counter, tokens: str | Sequence[str], layer: int, shift: int = 0) -> AttentionRow:
    """The attention of all heads of a layer over a typed row of two tokens or more; `shift` is its first PID."""
    if not isinstance(counter, Transformer):
        raise NotApplicable(
            f"{type(counter).__name__} has no attention: what it knows of earlier tokens is all in its state"
        )
    check_layer(counter, layer)
    layer_scores: list[Tensor] = []
    with counter.hooks(fwd_hooks=[(hook_name("attn_scores", layer), lambda scores, hook: layer_scores.append(scores))]):
        answers = predict_tokens(counter, tokens, shift)
    if len(answers.tokens) < 2:
        raise CountLensError("a row of one token, which can look at nothing else: write two or more")
    return AttentionRow(answers.tokens, answers.position_ids, layer, layer_scores[0][0].float().cpu().numpy())
