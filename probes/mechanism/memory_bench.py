"""What claims about one counter's memory are tested with: a sample of memories, their variables, and trials."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from models.counter import Counter
from probes.mechanism.memory import Remembers, Vectors
from probes.mechanism.memory_claims import DRAWS, FORCED, STILL
from probes.mechanism.memory_directions import (
    Basis,
    MemorySpace,
    Values,
    effects,
    main_directions,
    null_basis,
    strength,
)
from probes.mechanism.memory_trials import FORMS, Trials
from training.tasks import Task

CLEAR = 0.1  # of the strongest effect: a variable whose effects are weaker has no directions of its own


@dataclass(frozen=True)
class Bench:
    """A sample of memories with the values of their variables, and the trials on which claims are scored."""

    task: Task
    memory: Remembers
    space: MemorySpace
    values: dict[str, Values]
    trials: Trials
    generator: torch.Generator
    draws: int = DRAWS
    counter: Counter | None = None  # where claims are about its weights

    @classmethod
    def of(cls, task: Task, memory: Remembers, n_trials: int, seed: int, counter: Counter | None = None) -> "Bench":
        """The bench of rows that the task draws."""
        generator = torch.Generator().manual_seed(seed)
        vectors, values = FORMS[task.form].sample(task, memory, generator)
        trials = FORMS[task.form].trials(task, memory, n_trials, generator)
        return cls(task, memory, MemorySpace.of(vectors), dict(values), trials, generator, counter=counter)

    @cached_property
    def effects(self) -> dict[str, Float[Tensor, "level q"]]:
        """What each variable adds to memories."""
        return effects(self.space.coordinates, self.values)

    @cached_property
    def least(self) -> float:
        """The strength from which on an effect is clear."""
        return CLEAR * max(map(strength, self.effects.values()))

    def clear_directions(self, variable: str, rank: int) -> Basis:
        """The directions along which this variable makes a clear difference; there may be none."""
        return main_directions(self.effects[variable], rank, self.least)

    def null_bases(self, null: str, variable: str, rank: int) -> Iterator[Basis]:
        """One after the other, `draws` bases of a null that claims about a variable have to beat."""
        for _ in range(self.draws):
            yield null_basis(null, self.space, self.values, variable, rank, self.generator)

    def left(self, edit: Vectors) -> float:
        """The median share of the way to the donor's memory that an edit leaves."""
        whole = self.space.distance(self.trials.own, self.trials.donor)
        return float((self.space.distance(edit, self.trials.donor) / whole.clamp(min=1e-30)).median())

    def why_forced(self, edit: Vectors, ignored: bool) -> str:
        """Why nothing can be learnt from an edit; empty where something can."""
        moved = self.space.distance(self.trials.own, edit) / self.space.distance(self.trials.own, self.trials.donor)
        if ignored and float(moved.median()) < STILL:
            return "memories hardly differ in it, so that nothing is moved"
        if not ignored and self.left(edit) < FORCED:
            return "memories differ in nothing else, so that all of the donor's memory is put in place"
        return ""
