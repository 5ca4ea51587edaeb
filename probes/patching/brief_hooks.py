"""Hooks that stay for one short pass.

`counter.hooks` and `run_with_cache` visit every hook point of a counter before they return, about 1 ms: more than a
pass through a small counter takes. A patching sweep makes many such passes.
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
    """Puts a hook at each of these points, and takes away these hooks alone at the end of the `with`."""
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


def run_and_keep(
    counter: Counter,
    token_ids: TokenIds,
    position_ids: PositionIds,
    attention_mask: Bool[Tensor, "batch pos"] | None,
    names: Sequence[str],
) -> tuple[Logits, dict[str, Tensor]]:
    """The logits of a pass, and what it has at these hook points."""
    kept: dict[str, Tensor] = {}

    def keep(value: Tensor, hook: Any) -> None:
        kept[hook.name] = value

    with brief_hooks(counter, dict.fromkeys(names, keep)):
        return counter(token_ids, position_ids, attention_mask), kept
