"""Edits of one token of a row inside a counter: by name, at chosen layers and heads.

    cut        no other query of these heads sees the token; the softmax distributes its weight among the rest
    replaced   these heads read the next token's value in place of the token's own
    zeroed     these heads read zeros there; in a recurrent counter, the state after the token becomes 0
    averaged   these heads read the mean value of all tokens there; in a recurrent counter, the mean state

An edited state affects every later one. An embedding can be replaced or averaged, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "state zero second": "state after the second token reset to 0 (control)",
}
ROWS_AT_ONCE = 64
RECURRENT_ROWS_AT_ONCE = 16  # the states of RWKV-6 over a row take much memory

Hook = Callable[..., Tensor]
Hooks = tuple[tuple[str, Hook], ...]
LayerHead = tuple[int, int | None]  # a layer, and one of its heads or None for all of them
Means = Mapping[str, Float[Tensor, "*site"]]  # by hook point


@dataclass(frozen=True)
class Edit:
    """An edit of the first token at one place, and the hooks that do it."""

    kind: str  # key of KINDS
    layer: int | None  # None: every layer
    head: int | None  # None: every head
    hooks: Hooks


def edits_of(counter: Counter, batch: Batch) -> list[Edit]:
    """Every edit of the first token that makes sense for the counter; means are over the tokens of this batch."""
    n_layers = counter.cfg.n_layers
    means = means_to_read(counter, batch)

    def edit(kind: str, name: str, layer: int | None, head: int | None = None, column: int = 0) -> Edit:
        places = [(number, head) for number in (range(n_layers) if layer is None else [layer])]
        return Edit(kind, layer, head, edit_hooks(counter, name, places, means, column))

    edits = []
    if isinstance(counter, Transformer):
        edits = [edit("cut", "cut", *place) for place in _places(counter)]
        edits.append(edit("cut second", "cut", None, column=1))
    # Values are edited by layer and in all layers together; only cuts are made by head.
    layers = [*(range(n_layers) if n_layers > 1 else []), None]
    site = "value" if isinstance(counter, Transformer) else "state"
    for kind, name in (("zero", "zeroed"), ("mean", "averaged")):
        edits += [edit(f"{site} {kind}", name, layer) for layer in layers]
    if not isinstance(counter, Transformer):
        edits.append(edit("state zero second", "zeroed", None, column=1))
    return edits + _embedding_edits(counter, batch)


def edit_hooks(counter: Counter, name: str, places: Sequence[LayerHead], means: Means, column: int = 0) -> Hooks:
    """Hooks that apply the edit of this name to the token in a column; *averaged* needs `means` (`means_to_read`)."""
    if name == "cut":
        return tuple((hook_name("attn_scores", layer), cut_key(column, head)) for layer, head in places)
    site = _read_site(counter)
    hooks = []
    for layer, head in places:
        instead = {"replaced": None, "zeroed": 0.0, "averaged": means.get(hook_name(site, layer))}[name]
        if site == "v":
            hooks.append((hook_name("v", layer), _set_token(column, instead, head)))
        else:
            assert instead is not None, f"{name} is no edit of a state"
            hooks.append((hook_name("state_step", layer), _set_state(column, instead)))
    return tuple(hooks)


def means_to_read(counter: Counter, batch: Batch) -> Means:
    """The mean over all tokens of what a counter reads (attention values, or the state), by hook point."""
    return token_means(counter, batch, [hook_name(_read_site(counter), layer) for layer in range(counter.cfg.n_layers)])


def _read_site(counter: Counter) -> str:
    """The site through which later tokens read an earlier one: attention values, or the state."""
    return "v" if isinstance(counter, Transformer) else "state"


def split_batch(counter: Counter, batch: Batch) -> Iterator[Batch]:
    """The batch in pieces that are small enough to run at once."""
    step = ROWS_AT_ONCE if isinstance(counter, Transformer) else RECURRENT_ROWS_AT_ONCE
    for start in range(0, len(batch.token_ids), step):
        yield batch.rows(slice(start, start + step))


def token_means(counter: Counter, batch: Batch, names: Sequence[str]) -> dict[str, Float[Tensor, "*site"]]:
    """The mean activation at each of these hook points, over all tokens of a batch but padding."""
    totals: dict[str, Any] = dict.fromkeys(names, 0)
    for part in split_batch(counter, batch):
        shares = part.attention_mask * part.weights[:, None]

        def add(value: Float[Tensor, "batch pos *site"], hook: Any, shares: Tensor = shares) -> Tensor:
            totals[hook.name] = totals[hook.name] + torch.einsum("bp,bp...->...", shares, value)
            return value

        with counter.hooks(fwd_hooks=[(name, add) for name in names]):
            predict(counter, part)
    n_tokens = (batch.attention_mask * batch.weights[:, None]).sum()
    return {name: total / n_tokens for name, total in totals.items()}


def _places(counter: Transformer) -> list[tuple[int | None, int | None]]:
    """The (layer, head) of each head, of each layer and of all together; equal places are listed once."""
    n_layers, n_heads = counter.cfg.n_layers, counter.cfg.n_heads
    places: list[tuple[int | None, int | None]] = []
    if n_layers * n_heads > 1:
        places += [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    if n_layers > 1 and n_heads > 1:
        places += [(layer, None) for layer in range(n_layers)]
    return [*places, (None, None)]


def cut_key(key: int, head: int | None) -> Hook:
    """A hook that hides one key from every other query that sees more than this key."""

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


def _embedding_edits(counter: Counter, batch: Batch) -> list[Edit]:
    """The edits of the first token's embedding; none if the first two tokens of every row are equal."""
    if batch.token_ids.shape[1] < 2:
        return []
    first, second = batch.token_ids[:, :2].unbind(1)
    if ((first == second) | ~batch.attention_mask[:, 1]).all():  # a row of one token has no second
        return []
    name = hook_name("embed")
    mean = token_means(counter, batch, [name])[name]
    return [
        Edit("embedding next", None, None, ((name, _set_token(0, None)),)),
        Edit("embedding mean", None, None, ((name, _set_token(0, mean)),)),
    ]


def _set_token(column: int, instead: Tensor | float | None, head: int | None = None) -> Hook:
    """A hook that replaces a token's activation by `instead` (None: by the next token's), in one head or in all."""

    def edit(value: Float[Tensor, "batch pos *site"], hook: object) -> Float[Tensor, "batch pos *site"]:
        new = value[:, column + 1] if instead is None else torch.zeros_like(value[:, column]) + instead
        edited = value.clone()
        if head is None:
            edited[:, column] = new
        else:
            edited[:, column, head] = new[:, head]
        return edited

    return edit


def _set_state(column: int, state: Tensor | float) -> Hook:
    """A hook that replaces the state after this column, from which all later states follow."""

    def edit(value: Float[Tensor, "batch *site"], hook: Any) -> Float[Tensor, "batch *site"]:
        return torch.zeros_like(value) + state if hook.ctx["pos"] == column else value

    return edit
