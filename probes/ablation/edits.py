"""What can be done to the first token of a row inside a counter: each edit is a name, a place and its hooks.

Transformers: *cut* sets the scores of every later query for the first token to -inf, so that the softmax shares its
weight out among the rest; the same cut of the *second* token is the control. *value* replaces what is read there and
leaves the weights; *embedding* replaces what goes in. Recurrent counters: *state* replaces the state after the first
token, and the edit goes on into every later state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.counter import Counter
from models.hooks import hook_name
from models.transformer import Transformer
from training.batches import Batch
from training.evaluate import predict

KINDS = {
    "cut": "attention to {first} cut",
    "cut second": "attention to the second token cut (control)",
    "value zero": "{first}'s value set to 0",
    "value mean": "{first}'s value set to the mean of all tokens",
    "embedding next": "{first}'s embedding replaced by the next token's",
    "embedding mean": "{first}'s embedding replaced by the mean of all tokens",
    "state zero": "state after {first} reset to 0",
    "state mean": "state after {first} replaced by the mean of all positions",
}
ROWS_AT_ONCE = 64
RECURRENT_ROWS_AT_ONCE = 16  # a trajectory of RWKV-6's states is large

Hook = Callable[..., Tensor]
Hooks = tuple[tuple[str, Hook], ...]


@dataclass(frozen=True)
class Edit:
    """One thing done at one place."""

    kind: str  # key of KINDS
    layer: int | None  # None: at every layer
    head: int | None  # None: in every head
    hooks: Hooks


def edits_of(counter: Counter, batch: Batch) -> list[Edit]:
    """Every edit that makes sense for a counter; means are over the tokens of this batch."""
    if isinstance(counter, Transformer):
        edits = [*_cuts(counter), *_value_edits(counter, batch)]
    else:
        edits = _state_edits(counter, batch)
    return edits + _embedding_edits(counter, batch)


def parts(counter: Counter, batch: Batch) -> Iterator[Batch]:
    """The batch in pieces that are run at once."""
    step = ROWS_AT_ONCE if isinstance(counter, Transformer) else RECURRENT_ROWS_AT_ONCE
    for start in range(0, len(batch.token_ids), step):
        yield batch.rows(slice(start, start + step))


def token_means(counter: Counter, batch: Batch, names: Sequence[str]) -> dict[str, Float[Tensor, "*site"]]:
    """The mean activation at some hook points, over all tokens of a batch (padding aside)."""
    totals: dict[str, Any] = dict.fromkeys(names, 0)
    for part in parts(counter, batch):
        shares = part.attention_mask * part.weights[:, None]

        def add(value: Float[Tensor, "batch pos *site"], hook: Any, shares: Tensor = shares) -> Tensor:
            totals[hook.name] = totals[hook.name] + torch.einsum("bp,bp...->...", shares, value)
            return value

        with counter.hooks(fwd_hooks=[(name, add) for name in names]):
            predict(counter, part)
    n_tokens = (batch.attention_mask * batch.weights[:, None]).sum()
    return {name: total / n_tokens for name, total in totals.items()}


def _places(counter: Transformer) -> list[tuple[int | None, int | None]]:
    """(layer, head) of each head, each layer and altogether; a place that is the same as another comes once."""
    n_layers, n_heads = counter.cfg.n_layers, counter.cfg.n_heads
    places: list[tuple[int | None, int | None]] = []
    if n_layers * n_heads > 1:
        places += [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    if n_layers > 1 and n_heads > 1:
        places += [(layer, None) for layer in range(n_layers)]
    return [*places, (None, None)]


def _at(counter: Counter, site: str, layer: int | None, hook: Callable[[int], Hook]) -> Hooks:
    """A hook at one layer's site, or at all of them."""
    layers = range(counter.cfg.n_layers) if layer is None else [layer]
    return tuple((hook_name(site, layer=number), hook(number)) for number in layers)


def _cuts(counter: Transformer) -> list[Edit]:
    def cut(kind: str, key: int, layer: int | None, head: int | None) -> Edit:
        return Edit(kind, layer, head, _at(counter, "attn_scores", layer, lambda _: cut_key(key, head)))

    return [*(cut("cut", 0, *place) for place in _places(counter)), cut("cut second", 1, None, None)]


def cut_key(key: int, head: int | None) -> Hook:
    """A hook that hides one key from every other query; a query that sees nothing else is left alone."""

    def edit(scores: Float[Tensor, "batch head query key"], hook: object) -> Float[Tensor, "batch head query key"]:
        if scores.shape[-1] <= key:
            return scores
        hidden = scores.clone()
        hidden[..., key] = -torch.inf
        elsewhere = (hidden > -torch.inf).any(-1, keepdim=True)
        elsewhere[..., key, :] = False  # its own query
        if head is not None:
            others = torch.arange(scores.shape[1], device=scores.device) != head
            elsewhere = elsewhere & ~others[:, None, None]
        return torch.where(elsewhere, hidden, scores)

    return edit


def _value_edits(counter: Transformer, batch: Batch) -> list[Edit]:
    """By layer and altogether; by head there are the cuts."""
    names = [hook_name("v", layer=layer) for layer in range(counter.cfg.n_layers)]
    means = token_means(counter, batch, names)
    layers = range(counter.cfg.n_layers) if counter.cfg.n_layers > 1 else []
    return [
        Edit(f"value {kind}", layer, None, _at(counter, "v", layer, hook))
        for kind, hook in (("zero", lambda _: _set_first(0.0)), ("mean", lambda i: _set_first(means[names[i]])))
        for layer in [*layers, None]
    ]


def _embedding_edits(counter: Counter, batch: Batch) -> list[Edit]:
    """None where the first two tokens of every row are equal: the first is then no token of its own."""
    if batch.token_ids.shape[1] < 2:
        return []
    first, second = batch.token_ids[:, :2].unbind(1)
    if ((first == second) | ~batch.attention_mask[:, 1]).all():  # a row of one token has no second
        return []
    name = hook_name("embed")
    mean = token_means(counter, batch, [name])[name]
    return [
        Edit("embedding next", None, None, ((name, lambda value, hook: _with_first(value, value[:, 1])),)),
        Edit("embedding mean", None, None, ((name, _set_first(mean)),)),
    ]


def _state_edits(counter: Counter, batch: Batch) -> list[Edit]:
    names = [hook_name("state", layer=layer) for layer in range(counter.cfg.n_layers)]
    means = token_means(counter, batch, names)
    layers = range(counter.cfg.n_layers) if counter.cfg.n_layers > 1 else []
    return [
        Edit(f"state {kind}", layer, None, _at(counter, "state_step", layer, hook))
        for kind, hook in (("zero", lambda _: _set_state(0.0)), ("mean", lambda i: _set_state(means[names[i]])))
        for layer in [*layers, None]
    ]


def _with_first(value: Float[Tensor, "batch pos *site"], first: Tensor | float) -> Float[Tensor, "batch pos *site"]:
    value = value.clone()
    value[:, 0] = first
    return value


def _set_first(first: Tensor | float) -> Hook:
    return lambda value, hook: _with_first(value, first)


def _set_state(state: Tensor | float) -> Hook:
    def edit(value: Float[Tensor, "batch *site"], hook: Any) -> Float[Tensor, "batch *site"]:
        if hook.ctx["pos"] > 0:
            return value
        return torch.zeros_like(value) + state

    return edit
