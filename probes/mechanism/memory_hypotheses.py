"""Stated algorithms of recurrent counting, as small causal models of the memory: variables, places, interventions.

    modular     drift         how many rounds it has gone is apart from all else, and nothing reads it
                ring          a plane in which the memory goes round says the count
                phase         the same with as many directions as there are answers, less one
                curve         a smooth curve, such as sums of real exponentials trace: how far along it is the count
                slow_modes    modes of a linear recurrence that last a round or more, and matter only together
                clock_modes   modes that turn a whole number of times in a round
    selective   count_lines   a direction per kind, along which its count lies
                count_curves  the same with up to four directions per kind

Variables are taken from a donor's memory one at a time; which answers then change, and which stay, is the claim.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from probes.mechanism.memory import Vectors
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_claims import Judge, MemoryClaim
from probes.mechanism.memory_directions import NULLS, Basis, Coordinates, main_directions, null_basis, split_step
from probes.mechanism.memory_modes import clock_modes, slow_modes
from probes.mechanism.memory_trials import counted_memories, equal_token_trials
from probes.result import NotApplicable

RANDOM_NULLS = ("covariance", "span")
STEPS = (-3, -2, 2, 3)  # tokens by which a memory is moved along its curve


@dataclass(frozen=True)
class MemoryHypothesis:
    """An algorithm, and how its claims are tested."""

    form: str  # of counting
    equation: str
    summary: str
    claims: Callable[[Bench], tuple[MemoryClaim, ...]]


def _ring(rank: int | None) -> Callable[[Bench], tuple[MemoryClaim, ...]]:
    """Takes the count mod m from the donor, along its directions. Nulls have as many directions, and drift is held."""

    def claims(bench: Bench) -> tuple[MemoryClaim, ...]:
        assert bench.task.period is not None
        trials, space, most = bench.trials, bench.space, bench.task.period - 1
        ring, drift = main_directions(bench.effects["ring"], rank or most), bench.clear_directions("drift", most)
        step = space.step(trials.own, trials.donor)

        def swap(basis: Basis, beside: Tensor = drift) -> Vectors:
            return space.moved(trials.own, split_step(step, basis, beside))

        nulls: dict[str, Iterable[Vectors]] = {
            name: map(swap, bench.null_bases(name, "ring", ring.shape[1])) for name in NULLS
        }
        if drift.shape[1]:
            nulls["wrong variable"] = [swap(drift, ring[:, :0])]
        edit = swap(ring)
        place = f"{ring.shape[1]} of {len(space.axes)} directions"
        forced = bench.why_forced(edit, ignored=False)
        return (Judge(bench.memory, trials, trials.donor_labels).claim(edit, nulls, "ring", place, forced=forced),)

    return claims


def _drift(bench: Bench) -> tuple[MemoryClaim, ...]:
    """Takes drift from the donor, and in turn all but drift. Nulls do both with steps of equal length elsewhere.

    Directions of shuffled rounds are no null here: the fit finds drift in them too.
    """
    assert bench.task.period is not None
    trials, space, most = bench.trials, bench.space, bench.task.period - 1
    drift, ring = bench.clear_directions("drift", most), main_directions(bench.effects["ring"], most)
    step, nothing = space.step(trials.own, trials.donor), ring[:, :0]
    own_step = split_step(step, drift, ring)
    if not drift.shape[1]:
        raise NotApplicable("its memory does not drift: rounds make no clear difference")

    def elsewhere(basis: Basis) -> Vectors:
        return space.moved(trials.own, _as_long(split_step(step, basis, nothing), own_step))

    def all_but(basis: Basis) -> Vectors:
        return space.moved(trials.donor, -_as_long(split_step(step, basis, nothing), own_step))

    def claim(edit: Vectors, null: Callable[[Basis], Vectors], variable: str, rank: int, ignored: bool) -> MemoryClaim:
        nulls: dict[str, Iterable[Vectors]] = {
            name: map(null, bench.null_bases(name, "drift", drift.shape[1])) for name in RANDOM_NULLS
        }
        nulls["wrong variable"] = [null(ring[:, : drift.shape[1]])]
        judge = Judge(bench.memory, trials, trials.own_labels if ignored else trials.donor_labels)
        place = f"{rank} of {len(space.axes)} directions"
        return judge.claim(edit, nulls, variable, place, ignored, bench.why_forced(edit, ignored))

    rest = space.moved(trials.donor, -own_step)
    rank = drift.shape[1]
    return (
        claim(space.moved(trials.own, own_step), elsewhere, "drift", rank, ignored=True),
        claim(rest, all_but, "all but drift", len(space.axes) - rank, ignored=False),
    )


def _as_long(step: Coordinates, as_this: Coordinates) -> Coordinates:
    return step * as_this.norm(dim=1, keepdim=True) / step.norm(dim=1, keepdim=True).clamp(min=1e-30)


def _counts(rank: int) -> Callable[[Bench], tuple[MemoryClaim, ...]]:
    """Takes one kind's count from the donor, along `rank` directions that belong to that kind."""

    def claims(bench: Bench) -> tuple[MemoryClaim, ...]:
        trials, space, kinds = bench.trials, bench.space, bench.task.kinds
        own = {kind: main_directions(bench.effects[kind], rank) for kind in kinds}
        step = space.step(trials.own, trials.donor)
        rows = {kind: trials.about == index for index, kind in enumerate(kinds) if bool((trials.about == index).any())}

        def edit(basis_of: Callable[[str], Basis]) -> Vectors:
            new = trials.own.clone()
            for kind, of_kind in rows.items():
                others = torch.cat([own[other] for other in kinds if other != kind], 1)
                new[of_kind] = space.moved(trials.own[of_kind], split_step(step[of_kind], basis_of(kind), others))
            return new

        def null(name: str) -> Callable[[str], Basis]:
            return lambda kind: next(bench.null_bases(name, kind, rank))

        def other_kind(by: int) -> Callable[[str], Basis]:
            return lambda kind: own[kinds[(kinds.index(kind) + by) % len(kinds)]]

        nulls: dict[str, Iterable[Vectors]] = {name: map(edit, [null(name)] * bench.draws) for name in NULLS}
        nulls["wrong variable"] = [edit(other_kind(by)) for by in range(1, len(kinds))]
        true = edit(own.__getitem__)
        first = bench.trials.next_ids[:, :1]
        claimed = trials.donor_labels.where(trials.next_ids == first, trials.own_labels)
        place = f"{rank} of {space.axes.shape[0]} directions per kind"
        judge = Judge(bench.memory, trials, claimed)
        forced = bench.why_forced(true, ignored=False)
        return (judge.claim(true, nulls, "one kind's count", place, forced=forced),)

    return claims


def _curve(bench: Bench) -> tuple[MemoryClaim, ...]:
    """Moves memories along the tangent of their curve by some tokens. Nulls are steps of equal length elsewhere."""
    vectors, space, generator = counted_memories(bench.task, bench.memory), bench.space, bench.generator
    n_trials, reach = len(bench.trials), max(STEPS)
    at = torch.randint(reach, len(vectors) - reach, (n_trials,), generator=generator)
    by = torch.tensor(STEPS)[torch.randint(len(STEPS), (n_trials,), generator=generator)]
    trials = equal_token_trials(bench.task, vectors, at, at + by)
    moving = replace(bench, trials=trials)

    def tangent(place: Tensor) -> Coordinates:
        return space.step(vectors[place - 1], vectors[place + 1]) / 2

    along = tangent(at) * by[:, None]
    edit = space.moved(trials.own, along)

    def off(direction: Coordinates) -> Vectors:
        off_curve = direction - (direction * along).sum(1, keepdim=True) * along / along.square().sum(1, keepdim=True)
        return space.moved(trials.own, _as_long(off_curve, along))

    def draw(name: str) -> Vectors:
        if name == "other places":
            elsewhere = torch.randint(1, len(vectors) - 1, (n_trials,), generator=generator)
            return space.moved(trials.own, _as_long(tangent(elsewhere) * by.sign()[:, None], along))
        if name == "shuffled":
            start, end = torch.randint(len(vectors), (2, n_trials), generator=generator)
            return off(space.step(vectors[start], vectors[end]))
        return off(null_basis(name, space, bench.values, "ring", n_trials, generator, at_right_angles=False).T)

    nulls = {name: map(draw, [name] * bench.draws) for name in (*NULLS, "other places")}
    place = f"along the tangent, by {STEPS[-2]} or {STEPS[-1]} tokens"
    forced = moving.why_forced(edit, ignored=False)
    judge = Judge(bench.memory, trials, trials.donor_labels)
    return (judge.claim(edit, nulls, "position", place, forced=forced),)


HYPOTHESES: dict[str, MemoryHypothesis] = {
    "drift": MemoryHypothesis(
        "modular",
        "memory = what is read + drift(rounds)",
        "how many rounds it has gone is in directions of its own, which nothing reads; all others say the count",
        _drift,
    ),
    "ring": MemoryHypothesis(
        "modular",
        "memory = ring(count mod m) + drift(rounds)",
        "a plane in which the memory goes round says the count",
        _ring(rank=2),
    ),
    "phase": MemoryHypothesis(
        "modular",
        "memory = phase(count mod m) + drift(rounds)",
        "every count mod m has a place of its own, in as many directions as it takes",
        _ring(rank=None),
    ),
    "curve": MemoryHypothesis(
        "modular",
        "memory(count + k) = memory(count) + k tangent(count)",
        "the memory moves on a smooth curve, as sums of real exponentials do, and how far along it is says the count",
        _curve,
    ),
    "slow_modes": MemoryHypothesis(
        "modular",
        "memory = sum of modes that last a round or more",
        "lasting modes of the linear recurrence say the count, all of them together; the others do not matter",
        slow_modes,
    ),
    "clock_modes": MemoryHypothesis(
        "modular",
        "mode(count) ~ exp(2 pi i j count / m)",
        "modes that turn a whole number of times in a round say the count; the others do not matter",
        clock_modes,
    ),
    "count_lines": MemoryHypothesis(
        "selective",
        "memory = sum over kinds of count x direction",
        "every kind's count lies along a direction of its own",
        _counts(rank=1),
    ),
    "count_curves": MemoryHypothesis(
        "selective",
        "memory = sum over kinds of curve(count)",
        "every kind's count lies along a curve of its own, in up to four directions",
        _counts(rank=4),
    ),
}
