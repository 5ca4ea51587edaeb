"""Transplanted states: a row that goes on from another's count, against running the grafted row itself."""

import pytest
import torch

from models import CountLensError, load_counter
from models.counter import listening
from probes.mechanism.transplants import state_is_count, transplant
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating


@pytest.mark.parametrize("name", ["mod10/rnn-1L", "mod10/lstm-1L"])
@pytest.mark.parametrize(("taken", "at"), [(12, 5), (0, 20), (29, 0)])
def test_a_transplant_answers_as_the_grafted_row_does(name: str, taken: int, at: int) -> None:
    counter = load_counter(name)
    found = transplant(counter, taken, at, length=30)
    task, _ = task_of_counter(counter)
    grafted = torch.full((1, taken + 30 - at), task.vocab.id("a"))
    with evaluating(counter):
        logits = counter(grafted, torch.arange(grafted.shape[1])[None])
    expected = task.vocab.decode(logits[0].argmax(-1)[taken:].tolist())
    assert list(found.transplanted[at:]) == expected
    assert found.transplanted[:at] == found.answers[:at]
    assert all(found.followed[at:])
    assert found.followed[:at] == (None,) * at


def test_a_trained_rnn_holds_the_count_in_nine_directions_and_an_untrained_one_does_not() -> None:
    found = state_is_count(load_counter("mod10/rnn-1L"), pairs=64)
    assert found.holds
    assert found.few
    assert found.whole.value > 0.99
    assert found.n_directions == (9, 128)
    assert found.directions.value > 0.95
    assert found.rest.value > 0.95
    assert max(found.placebo.value, found.untrained.value) < 0.3


def test_the_count_of_an_s4_is_not_in_few_directions() -> None:
    found = state_is_count(load_counter("mod10/s4-1L"), pairs=32)
    assert found.holds
    assert not found.few
    assert "not only in" in found.verdict.sentence


def test_selective_counters_go_on_with_every_kind() -> None:
    found = state_is_count(load_counter("selective/lstm-1L"), pairs=64)
    assert found.whole.value > 0.9


def test_hooks_go_and_bad_columns_are_refused() -> None:
    counter = load_counter("mod10/rnn-1L")
    transplant(counter, 3, 4, length=10)
    assert not any(listening(point) for point in counter.hook_dict.values())
    with pytest.raises(CountLensError, match=r"column=10 is outside 0\.\.9"):
        transplant(counter, 3, 10, length=10)
    with pytest.raises(CountLensError, match=r"layers 0\.\.0"):
        transplant(counter, 3, 4, length=10, layer=1)


def test_attention_counters_have_no_state() -> None:
    with pytest.raises(NotApplicable, match="no state"):
        state_is_count(load_counter("mod10/ape-2L"))
