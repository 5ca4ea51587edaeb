"""Hooks for one short forward pass, set and removed faster than TransformerLens does.

`counter.hooks` and `run_with_cache` visit every hook point of a counter before they return. That takes about 1 ms, more
than a pass through a small counter, and a patching sweep makes many such passes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from models.counter import Counter
from models.shapes import Logits, PositionIds, TokenIds


@contextmanager
def brief_hooks(counter: Counter, hooks: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Adds a hook at each of these hook points, and removes only these hooks at the end of the `with`."""
    handles = []
    try:
        for name, hook in hooks.items():
            point = counter.hook_dict[name]
            handles.append((point, point.add_hook(hook)))
        yield
    finally:
        for point, handle in handles:
            handle.hook.remove()
            point.fwd_hooks.remove(handle)


def run_and_cache(
    counter: Counter,
    token_ids: TokenIds,
    position_ids: PositionIds,
    attention_mask: Bool[Tensor, "batch pos"] | None,
    names: Sequence[str],
) -> tuple[Logits, dict[str, Tensor]]:
    """The logits of a forward pass, and its activations at these hook points."""
    cache: dict[str, Tensor] = {}

    def keep(value: Tensor, hook: Any) -> None:
        cache[hook.name] = value

    with brief_hooks(counter, dict.fromkeys(names, keep)):
        return counter(token_ids, position_ids, attention_mask), cache
