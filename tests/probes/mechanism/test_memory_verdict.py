"""Verdicts on shipped counters: what is supported with its numbers, and what was claimed before and is not so."""

import pytest

from models import load_counter
from probes.mechanism.handbuilt_memory import handbuilt_memory
from probes.mechanism.memory_hypotheses import HYPOTHESES
from probes.mechanism.memory_verdict import MemoryMechanisms, memory_mechanisms
from probes.result import NotApplicable
from training.tasks import make_task


def names(result: MemoryMechanisms) -> set[str]:
    return {tested.name for tested in result.supported}


def test_nine_directions_of_an_rnn_carry_no_more_than_nine_others() -> None:
    """Once called `the count is in 9 of 128 directions`: states of shuffled counts have directions as good."""
    result = memory_mechanisms(load_counter("mod10/rnn-1L"))
    phase = next(tested for tested in result.hypotheses if tested.name == "phase")
    assert phase.claims[0].score.value > 0.99
    nulls = {null.name: null for null in phase.claims[0].nulls}
    assert nulls["shuffled"].highest >= 0.95
    assert nulls["covariance"].highest >= 0.95
    assert "phase" not in names(result)
    assert "Not above: " in result.verdict.sentence or "Not testable: " in result.verdict.sentence


def test_the_drift_of_an_lstm_is_read_by_nothing() -> None:
    result = memory_mechanisms(load_counter("mod10/lstm-1L"))
    assert "drift" in names(result)
    drift = next(tested for tested in result.hypotheses if tested.name == "drift")
    assert all(claim.score.value > 0.95 for claim in drift.claims)
    assert drift.margin.low > 0
    assert "curve" not in names(result)


def test_rwkv6_counts_along_a_curve_and_mamba_by_nothing_that_is_stated() -> None:
    curve_only = {"curve": HYPOTHESES["curve"]}
    assert names(memory_mechanisms(load_counter("mod10/rwkv6-1L"), curve_only, trials=32)) == {"curve"}
    result = memory_mechanisms(load_counter("mod10/mamba-1L"), trials=16)
    assert not names(result)
    assert result.verdict.sentence.startswith("No stated algorithm is above every null. The nearest is ")


def test_a_selective_lstm_holds_counts_of_kinds_apart() -> None:
    result = memory_mechanisms(load_counter("selective/lstm-1L"))
    assert "count_curves" in names(result)
    frame = result.to_frame()
    assert set(frame["hypothesis"]) == {"count_lines", "count_curves"}
    assert (frame["draws"] > 0).all()


def test_the_same_seed_gives_the_same_numbers() -> None:
    counter = handbuilt_memory("ring", make_task("mod10"))
    first, second = (memory_mechanisms(counter, trials=8).to_frame() for _ in range(2))
    assert first.equals(second)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(NotApplicable, match="no state"):
        memory_mechanisms(load_counter("mod10/ape-2L"))
    with pytest.raises(NotApplicable, match="no hypothesis"):
        memory_mechanisms(load_counter("mod10/rnn-1L"), hypotheses={}, trials=4)
