"""Modes of a linear recurrence, such as S4's: each lasts so long and turns so fast, whatever the tokens are.

A state is a sum of modes, so modes can be taken from a donor's memory one by one. They are far from being at right
angles: the modes of a state may be many times larger than the state itself, and cancel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from models.counter import Counter
from models.recurrent import Recurrent, RecurrentBlock
from probes.mechanism.memory import Part, Vectors
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_claims import Judge, MemoryClaim
from probes.result import NotApplicable

NEAR = 0.06  # radians per token: how near to a harmonic of its period a clock's modes turn
OTHER_MODULI = (7, 8, 9, 11, 12, 13)
ROUNDING = 1e-9  # radians per token: modes that turn more alike than this turn alike

Chosen = Bool[Tensor, "channel mode"]


@dataclass(frozen=True)
class Modes:
    """The modes of all layers, one layer's channels after the other's."""

    parts: tuple[Part, ...]
    eigenvalues: Complex[Tensor, "channel mode"]
    vectors: Complex[Tensor, "channel size mode"]

    @classmethod
    def of(cls, counter: Counter | None, parts: Sequence[Part]) -> "Modes":
        """The modes of a counter whose whole memory is the state of a linear recurrence."""
        matrices = []
        for part in parts:
            block = counter.blocks[part.layer] if isinstance(counter, Recurrent) else None
            layer = block.mixer.transition_matrices() if isinstance(block, RecurrentBlock) else None
            if layer is None or part.name != "state":
                raise NotApplicable("what a token does to the memory depends on the memory or the token: no modes")
            matrices.append(layer.detach().cpu())
        return cls(tuple(parts), *torch.linalg.eig(torch.cat(matrices)))

    @property
    def lasting(self) -> Float[Tensor, "channel mode"]:
        """Tokens after which a mode is down to 1/e."""
        return -1 / self.eigenvalues.abs().clamp(max=1 - 1e-12).log()

    @property
    def turning(self) -> Float[Tensor, "channel mode"]:
        """Radians that a mode turns by per token."""
        return self.eigenvalues.angle().abs()

    def amounts(self, step: Vectors) -> Complex[Tensor, "row channel mode"]:
        """How much of each mode a step from one memory to another has."""
        by_channel = step.unflatten(1, self.eigenvalues.shape).to(self.vectors.dtype)
        return einsum(
            torch.linalg.inv(self.vectors), by_channel, "channel mode size, row channel size -> row channel mode"
        )

    def moved(self, own: Vectors, amounts: Complex[Tensor, "row channel mode"], chosen: Chosen) -> Vectors:
        """A memory after the part of a step that lies in these modes."""
        share = einsum(self.vectors, amounts * chosen, "channel size mode, row channel mode -> row channel size")
        return own + share.real.flatten(1).to(own.dtype)

    def random_key(self, generator: torch.Generator) -> Float[Tensor, "channel mode"]:
        """A random number per mode, the same for both modes of a conjugate pair, which stand side by side."""
        key = torch.rand(self.eigenvalues.shape, generator=generator, dtype=torch.float64)
        return key.roll(1, 1).where(self.eigenvalues.imag < 0, key)

    def nearest(self, modulus: int) -> Float[Tensor, "channel mode"]:
        """How far each mode's turning is from the nearest harmonic of a period."""
        harmonics = 2 * math.pi / modulus * torch.arange(1, modulus // 2 + 1)
        return (self.turning[..., None] - harmonics).abs().amin(-1)


def slow_modes(bench: Bench) -> tuple[MemoryClaim, ...]:
    """That modes which last a round or more carry the count, all of them together, and the others do not matter.

    Clocks without damping last too. Where they alone carry the count, the other lasting modes have no share in it.
    """
    assert bench.task.period is not None
    modes = Modes.of(bench.counter, bench.memory.parts)
    slow, clock = _lasting(modes, bench.task.period), _clocks(modes, bench.task.period)
    place = f"{int(slow.sum())} of {slow.numel()} modes, which last {bench.task.period} tokens or more"

    def half(generator: torch.Generator) -> Chosen:
        return slow & (modes.random_key(generator) < 0.5)

    nulls = {"half of them": [half(bench.generator) for _ in range(bench.draws)]}
    if bool((slow & clock).any()):
        nulls["the clocks among them"] = [slow & clock]
    return _mode_claims(bench, modes, slow, "slow modes", place, nulls)


def clock_modes(bench: Bench) -> tuple[MemoryClaim, ...]:
    """That modes which turn a whole number of times in a round carry the count, and the others do not matter."""
    assert bench.task.period is not None
    modes = Modes.of(bench.counter, bench.memory.parts)
    slow, clock = _lasting(modes, bench.task.period), _clocks(modes, bench.task.period)
    number = int(clock.sum())
    place = f"{number} of {clock.numel()} modes, which turn by nearly a multiple of 1/{bench.task.period}"
    nulls = {"clocks of other periods": [_nearest_others(modes, modulus, clock, bench) for modulus in OTHER_MODULI]}
    if bool((slow & ~clock).any()):
        nulls["as many that last"] = [
            _lowest(modes.random_key(bench.generator), number, slow & ~clock) for _ in range(bench.draws)
        ]
    return _mode_claims(bench, modes, clock, "clock modes", place, nulls)


def _lasting(modes: Modes, period: int) -> Chosen:
    return modes.lasting >= period


def _clocks(modes: Modes, period: int) -> Chosen:
    return modes.nearest(period) < NEAR


def _nearest_others(modes: Modes, modulus: int, clock: Chosen, bench: Bench) -> Chosen:
    """Of all modes but the clocks, as many as there are clocks: those that turn most like clocks of another period.

    Channels may have equal modes, so that chance decides between modes which turn alike.
    """
    turning = modes.nearest(modulus) + ROUNDING * modes.random_key(bench.generator)
    return _lowest(turning, int(clock.sum()), ~clock)


def _lowest(values: Float[Tensor, "channel mode"], number: int, among: Chosen | None = None) -> Chosen:
    """The `number` modes with the lowest values, or all if there are fewer to choose from."""
    among = torch.ones_like(values, dtype=torch.bool) if among is None else among
    number = min(number, int(among.sum()))
    return among & (values <= values[among].kthvalue(number).values) if number else torch.zeros_like(among)


def _mode_claims(
    bench: Bench, modes: Modes, chosen: Chosen, variable: str, place: str, nulls: dict[str, list[Chosen]]
) -> tuple[MemoryClaim, ...]:
    """Two claims: with these modes from the donor the answers move, and with all other modes they stay."""
    trials, number = bench.trials, int(chosen.sum())
    if number == 0:
        raise NotApplicable(f"it has no {variable}")
    amounts = modes.amounts(trials.donor.double() - trials.own.double())
    at_random = [_lowest(modes.random_key(bench.generator), number) for _ in range(bench.draws)]

    def moved(which: Chosen) -> Vectors:
        return modes.moved(trials.own, amounts, which)

    def claim(flip: bool, sets: dict[str, list[Chosen]], name: str, where: str) -> MemoryClaim:
        edit = moved(chosen ^ flip)
        edits = {null: map(moved, [which ^ flip for which in draws]) for null, draws in sets.items()}
        judge = Judge(bench.memory, trials, trials.own_labels if flip else trials.donor_labels)
        return judge.claim(edit, edits, name, where, flip, bench.why_forced(edit, ignored=flip))

    carried = claim(False, {"as many others": at_random} | nulls, variable, place)
    return carried, claim(True, {"as many others": at_random}, "all other modes", f"{chosen.numel() - number} modes")
