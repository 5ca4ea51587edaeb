"""Transplanted memories: a row that goes on from another's count, and which part of a memory answers follow."""

import pytest
import torch

from models import CountLensError, load_counter
from models.counter import listening
from probes.mechanism.transplants import memory_parts, transplant
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating


@pytest.mark.parametrize("family", ["rnn", "lstm", "s4", "mamba", "rwkv6"])
@pytest.mark.parametrize(("taken", "at"), [(12, 5), (0, 20), (29, 0)])
def test_a_transplant_answers_as_the_grafted_row_does(family: str, taken: int, at: int) -> None:
    """In every family: what Mamba and RWKV-6 remember beside the state goes along."""
    counter = load_counter(f"mod10/{family}-1L")
    found = transplant(counter, taken, at, length=30)
    task, _ = task_of_counter(counter)
    grafted = torch.full((1, taken + 30 - at), task.vocab.id("a"))
    with evaluating(counter):
        logits = counter(grafted, torch.arange(grafted.shape[1])[None])
    expected = task.vocab.decode(logits[0].argmax(-1)[taken + 1 :].tolist())
    assert list(found.transplanted[at + 1 :]) == expected
    assert found.transplanted[: at + 1] == found.answers[: at + 1]
    assert found.followed[: at + 1] == (None,) * (at + 1)


def test_answers_that_go_on_are_counted() -> None:
    found = transplant(load_counter("mod10/lstm-1L"), 12, 5, length=16)
    assert all(found.followed[6:])
    assert found.verdict.sentence.startswith("With the memory of token 13 at token 6, 10 of 10 later answers go on")
    last = transplant(load_counter("mod10/lstm-1L"), 12, 15, length=16)
    assert last.transplanted == last.answers


def test_one_layer_can_be_transplanted_alone() -> None:
    top, below = (transplant(load_counter("mod10/lstm-4L"), 12, 5, length=16, layer=layer) for layer in (3, 0))
    assert all(top.followed[6:])
    assert below.transplanted == below.answers


def test_the_count_of_a_deep_lstm_is_in_its_last_layer() -> None:
    found = memory_parts(load_counter("mod10/lstm-4L"), trials=48)
    last = found.parts[-1]
    assert last.part.layer == 3
    assert last.alone.value > 0.9
    assert last.without.value < 0.1
    assert last.margin.low > 0.8
    assert all(one.alone.value < 0.1 for one in found.parts[:-1])
    assert "as they must" in found.verdict.sentence


def test_selective_mamba_remembers_in_its_state_and_a_little_in_its_window() -> None:
    state, window = memory_parts(load_counter("selective/mamba-1L"), trials=64).parts
    assert (state.part.name, window.part.name) == ("state", "window")
    assert 0.6 < state.alone.value < 0.97  # with the window left behind some answers are lost
    assert window.alone.value < 0.2


def test_where_rows_differ_in_one_part_only_its_transplant_is_a_tautology() -> None:
    """After a few equal tokens Mamba's window is always the same: the state alone is the whole memory."""
    found = memory_parts(load_counter("mod10/mamba-1L"), trials=48)
    assert [one.forced for one in found.parts] == ["memories differ in no other part", "memories do not differ in it"]
    assert "none can be tested" in found.verdict.sentence


def test_a_memory_of_one_part_is_not_testable() -> None:
    assert memory_parts(load_counter("mod10/rnn-1L"), trials=16).verdict.sentence.startswith("Not testable")


def test_hooks_go_and_bad_columns_are_refused() -> None:
    counter = load_counter("mod10/rnn-1L")
    transplant(counter, 3, 4, length=10)
    assert not any(listening(point) for point in counter.hook_dict.values())
    with pytest.raises(CountLensError, match=r"column=10 is outside 0\.\.9"):
        transplant(counter, 3, 10, length=10)
    with pytest.raises(CountLensError, match=r"layers 0\.\.0"):
        transplant(counter, 3, 4, length=10, layer=1)


def test_attention_counters_have_no_state() -> None:
    for probe in (memory_parts, lambda counter: transplant(counter, 1, 1)):
        with pytest.raises(NotApplicable, match="no state"):
            probe(load_counter("mod10/ape-2L"))
