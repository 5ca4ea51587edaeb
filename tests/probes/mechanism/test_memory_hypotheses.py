"""Planted truths about memories are found by their names, planted falsehoods are refused, noise is noise."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from mechanism_nulls import most_alarms, supported_by_hashed_counts, supported_by_random_table
from planted_memory import Copies, HashedCounts, KindCounts, TurnedCodes, Turning, Waves
from torch import Tensor

from probes.mechanism.handbuilt_memory import handbuilt_memory
from probes.mechanism.memory import CounterMemory
from probes.mechanism.memory_bench import Bench
from probes.mechanism.memory_claims import MemoryClaim
from probes.mechanism.memory_hypotheses import HYPOTHESES
from probes.mechanism.memory_verdict import MemoryMechanisms, examine, memory_mechanisms
from probes.mechanism.transplants import parts_of_memory
from training.tasks import Task, make_task

MOD10, SELECTIVE = make_task("mod10"), make_task("selective")
LEVEL = 0.05


def names(result: MemoryMechanisms) -> set[str]:
    return {tested.name for tested in result.supported}


def claim_of(result: MemoryMechanisms, hypothesis: str, variable: str) -> MemoryClaim:
    tested = next(one for one in result.hypotheses if one.name == hypothesis)
    return next(claim for claim in tested.claims if claim.variable == variable)


def test_a_ring_of_ten_saturated_units_is_found_as_phases_and_not_as_a_curve() -> None:
    result = memory_mechanisms(handbuilt_memory("ring", MOD10))
    assert names(result) == {"phase"}
    assert claim_of(result, "phase", "ring").score.value == 1
    assert claim_of(result, "phase", "ring").margin.low > 0.2


def test_a_turning_plane_with_a_drift_is_found_and_both_are_transplanted_apart() -> None:
    result = examine(MOD10, Turning(MOD10))
    assert {"ring", "drift"} <= names(result)
    assert claim_of(result, "ring", "ring").score.value > 0.95
    assert claim_of(result, "drift", "drift").score.value > 0.95
    assert claim_of(result, "drift", "drift").ignored
    assert "curve" not in names(result)


def test_a_ring_that_nothing_reads_is_refused() -> None:
    result = examine(MOD10, Turning(MOD10, decoy=True))
    assert not {"ring", "phase", "drift"} & names(result)
    assert claim_of(result, "ring", "ring").score.value < 0.2


def test_a_leaky_sum_read_by_thresholds_is_found_as_a_curve_and_not_as_a_ring() -> None:
    result = memory_mechanisms(handbuilt_memory("curve", MOD10))
    assert names(result) == {"curve"}
    assert claim_of(result, "curve", "position").score.value > 0.7
    assert claim_of(result, "ring", "ring").best_null.name == "wrong variable"  # the drift is what is read


def test_a_unit_per_count_is_none_of_them() -> None:
    assert not names(memory_mechanisms(handbuilt_memory("table", MOD10)))


def grades(result: MemoryMechanisms) -> dict[str, str]:
    return {tested.name: tested.grade for tested in result.supported}


def test_a_ring_of_twenty_places_is_no_ring_of_ten() -> None:
    """Its answers go round twice: half a turn apart they are the same."""
    result = examine(MOD10, Waves(MOD10, (20,), lambda phases, tokens: phases[0] + 20))
    assert not {"ring", "phase", "drift"} & names(result)
    assert claim_of(result, "ring", "ring").score.value < 0.2


def test_two_rings_of_two_and_of_five_are_a_ring_in_part_at_most() -> None:
    """Together they tell the count modulo 10, and neither plane does alone."""
    result = examine(MOD10, Waves(MOD10, (2, 5), lambda phases, tokens: (5 * phases[0] + 6 * phases[1]) % 10 + 10))
    assert grades(result) == {"drift": "strong", "ring": "weak"}


def test_a_ring_that_tells_the_count_only_together_with_the_drift_is_none() -> None:
    """Eleven places: which round it is must be known to tell the count modulo 10."""

    def read(phases: list[Tensor], tokens: Tensor) -> Tensor:
        return phases[0] + 11 * ((tokens - phases[0]) / 11).round().long()

    assert not {"ring", "phase", "drift", "curve"} & names(examine(MOD10, Waves(MOD10, (11,), read)))


def test_a_code_that_turns_with_every_token_is_none_of_them() -> None:
    result = examine(MOD10, TurnedCodes(MOD10))
    assert result.whole.value == 1
    assert not names(result)


def test_three_copies_of_which_two_are_read_are_no_ring_and_no_part_of_the_memory_holds_the_count_alone() -> None:
    """With one copy exchanged nothing happens, with two everything does."""
    assert "ring" not in names(examine(MOD10, Copies(MOD10)))
    parts = parts_of_memory(MOD10, Copies(MOD10), trials=48)
    assert [part.alone.value for part in parts.parts] == [0, 0, 0]
    assert [part.without.value for part in parts.parts] == [1, 1, 1]
    assert not parts.holders
    assert parts.headline.label == "no part alone"
    assert "No part alone is followed" in parts.verdict.sentence


def test_counts_along_lines_are_found_and_hashed_counts_are_refused() -> None:
    found = examine(SELECTIVE, KindCounts(SELECTIVE))
    assert "count_lines" in names(found)
    assert claim_of(found, "count_lines", "one kind's count").score.value > 0.9
    refused = examine(SELECTIVE, HashedCounts(SELECTIVE), trials=24)
    assert refused.whole.value == 1  # whole memories go on, as they must
    assert not names(refused)


def test_memories_that_differ_in_nothing_else_are_not_testable() -> None:
    class OnlyRing(Turning):
        """The same without drift and idle waves."""

        def __init__(self, task: Task) -> None:
            super().__init__(task)
            self.start, self.drift = self.start * (torch.arange(len(self.start)) < 2), self.drift * 0

    result = examine(MOD10, OnlyRing(MOD10))
    ring = next(tested for tested in result.hypotheses if tested.name == "ring")
    assert ring.claims[0].score.value == 1
    assert not ring.testable
    assert "all of the donor's memory" in ring.claims[0].forced
    assert "not drift" in result.skipped["drift"]
    assert not names(result)
    assert "ring" in result.verdict.sentence.split("Not testable:")[1]


def permuted(bench: Bench, seed: int) -> Bench:
    """The same memories with the variable dealt out again: nothing is left to be found."""
    order = torch.randperm(len(bench.values["ring"]), generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed)
    return replace(bench, values={**bench.values, "ring": bench.values["ring"][order]}, generator=generator)


def false_alarms_of_permuted_values(draws: int, hypothesis: str) -> float:
    memory = CounterMemory(handbuilt_memory("ring", MOD10))
    bench = Bench.of(MOD10, memory, 24, seed=0)
    claims = HYPOTHESES[hypothesis].claims
    return sum(claims(permuted(bench, seed))[0].supported for seed in range(draws)) / draws


@pytest.mark.parametrize("hypothesis", ["ring", "phase"])
def test_permuted_values_are_rarely_found(hypothesis: str) -> None:
    assert false_alarms_of_permuted_values(20, hypothesis) <= 3 * LEVEL


def test_random_tables_are_rarely_taken_for_an_algorithm() -> None:
    alarms = Counter(name for seed in range(10) for name in supported_by_random_table(seed))
    assert max(alarms.values(), default=0) <= 2


@pytest.mark.slow  # quick sibling: test_permuted_values_are_rarely_found
@pytest.mark.parametrize("hypothesis", ["ring", "phase"])
def test_permuted_values_raise_false_alarms_in_no_more_than_one_of_twenty(hypothesis: str) -> None:
    assert false_alarms_of_permuted_values(1000, hypothesis) <= LEVEL + 0.014  # two standard errors


@pytest.mark.slow  # benchmarks/false_alarms.py draws a thousand; the quick sibling is the test of ten tables
def test_random_tables_raise_false_alarms_in_no_more_than_one_of_twenty() -> None:
    alarms = Counter(name for seed in range(200) for name in supported_by_random_table(seed))
    assert max(alarms.values(), default=0) <= most_alarms(200)


@pytest.mark.slow  # benchmarks/false_alarms.py draws a thousand; the quick sibling is the test of lines and hashes
def test_hashed_counts_raise_false_alarms_in_no_more_than_one_of_twenty() -> None:
    alarms = Counter(name for seed in range(100) for name in supported_by_hashed_counts(seed))
    assert max(alarms.values(), default=0) <= most_alarms(100)
