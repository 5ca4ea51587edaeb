"""All that a recurrent counter remembers after a token, as one vector per row, and its answers from such a vector on.

A vector holds every part of the family's memory in every layer (`Recurrent.memory`): the state, Mamba's convolution
window, RWKV-6's token shifts. So a transplant of the whole vector leaves nothing behind: what follows is, to rounding,
what follows in a row that begins with the donor's tokens and goes on with these. Nothing about the counter is learnt
from it. Claims are about transplants of less than everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.counter import Counter
from models.recurrent import Carry, Memory, Recurrent
from probes.result import NotApplicable
from training.evaluate import evaluating

Vectors = Float[Tensor, "row d"]
LaterAnswers = Int[Tensor, "row later"]
ROWS_AT_ONCE = 128  # some memories are large


@dataclass(frozen=True)
class Part:
    """Where a part of a layer's memory lies in the vector."""

    layer: int
    name: str
    start: int
    stop: int

    @property
    def label(self) -> str:
        """Its name in tables and figures."""
        return f"{self.name} of layer {self.layer}"


@runtime_checkable
class Remembers(Protocol):
    """What a transplant needs of a counter. Tests implement it for memories that they plant."""

    @property
    def parts(self) -> Sequence[Part]:
        """The parts of a memory vector, in order."""

    def after(self, token_ids: Int[Tensor, "row pos"]) -> Float[Tensor, "row pos d"]:
        """The memory vector after every token."""

    def go_on(self, vectors: Vectors, token_ids: Int[Tensor, "row later"]) -> LaterAnswers:
        """The answers at these tokens when they are read after such memories."""


class CounterMemory:
    """The memory of a recurrent counter, on the CPU."""

    def __init__(self, counter: Counter) -> None:
        if not isinstance(counter, Recurrent):
            raise NotApplicable("an attention counter has no state to transplant: patch its keys and values instead")
        self.counter = counter
        with evaluating(counter):
            _, self._carry = counter.step(torch.zeros(1, dtype=torch.long, device=counter.device))
        sizes = [(layer, name, part) for layer, parts in enumerate(self._memory()) for name, part in parts.items()]
        self._shapes = [tuple(part.shape[1:]) for _, _, part in sizes]
        ends = torch.tensor([part.numel() for _, _, part in sizes]).cumsum(0).tolist()
        self.parts = tuple(
            Part(layer, name, start, stop)
            for (layer, name, _), start, stop in zip(sizes, [0, *ends], ends, strict=False)
        )

    def _memory(self) -> list[Memory]:
        return self.counter.memory(self._carry)

    def after(self, token_ids: Int[Tensor, "row pos"]) -> Float[Tensor, "row pos d"]:
        """The memory vector after every token."""
        carry: list[Carry] | None = None
        vectors = []
        with evaluating(self.counter):
            for token in token_ids.to(self.counter.device).unbind(1):
                _, carry = self.counter.step(token, carry)
                memory = self.counter.memory(carry)
                vectors.append(torch.cat([part.flatten(1) for layer in memory for part in layer.values()], 1).cpu())
        return torch.stack(vectors, 1)

    def go_on(self, vectors: Vectors, token_ids: Int[Tensor, "row later"]) -> LaterAnswers:
        """The answers at these tokens when they are read after such memories."""
        chunks = zip(vectors.split(ROWS_AT_ONCE), token_ids.split(ROWS_AT_ONCE), strict=True)
        return torch.cat([self.logits(*chunk).argmax(-1) for chunk in chunks])

    def logits(self, vectors: Vectors, token_ids: Int[Tensor, "row later"]) -> Float[Tensor, "row later d_vocab"]:
        """The logits at these tokens when they are read after such memories."""
        carry, logits = self._carry_of(vectors.to(self.counter.device)), []
        with evaluating(self.counter):
            for token in token_ids.to(self.counter.device).unbind(1):
                at_token, carry = self.counter.step(token, carry)
                logits.append(at_token)
        return torch.stack(logits, 1).cpu()

    def _carry_of(self, vectors: Vectors) -> list[Carry]:
        memory: list[Memory] = [{} for _ in self._carry]
        for part, shape in zip(self.parts, self._shapes, strict=True):
            memory[part.layer][part.name] = vectors[:, part.start : part.stop].reshape(-1, *shape)
        return self.counter.with_memory(self._carry, memory)
