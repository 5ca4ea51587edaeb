"""The memory of a counter as one vector: a transplant of all of it answers as the spliced row, of less it does not."""

import pytest
import torch

from models import load_counter
from probes.mechanism.memory import CounterMemory
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating

FAMILIES = ["rnn", "lstm", "s4", "mamba", "rwkv6"]
AT, TAKEN = 20, 11


def spliced(family: str) -> tuple[CounterMemory, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A memory, two batches of rows, and the logits of the parallel form where the one begins as the other does."""
    counter = load_counter(f"selective/{family}-1L")
    task, _ = task_of_counter(counter)
    generator = torch.Generator().manual_seed(3)
    row, other = (task.sample_length(30, 4, generator).token_ids for _ in range(2))
    grafted = torch.cat([other[:, : TAKEN + 1], row[:, AT + 1 :]], 1)
    with evaluating(counter):
        expected = counter(grafted, torch.zeros_like(grafted))[:, TAKEN + 1 :]
    return CounterMemory(counter), row, other, expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_memory_goes_on_as_the_row_that_was_spliced(family: str) -> None:
    memory, row, other, expected = spliced(family)
    own, donor = memory.after(row)[:, AT], memory.after(other)[:, TAKEN]
    size = expected.abs().max()
    torch.testing.assert_close(memory.logits(donor, row[:, AT + 1 :]) / size, expected / size, atol=1e-5, rtol=0)
    assert torch.equal(memory.go_on(donor, row[:, AT + 1 :]), expected.argmax(-1))
    assert not torch.equal(memory.go_on(own, row[:, AT + 1 :]), expected.argmax(-1))


@pytest.mark.parametrize(("family", "part"), [("mamba", "window"), ("rwkv6", "time_shift"), ("rwkv6", "channel_shift")])
def test_what_is_left_behind_is_missed(family: str, part: str) -> None:
    """With the state alone, as transplants once were, the next token is answered from two rows at once."""
    memory, row, other, expected = spliced(family)
    own, donor = memory.after(row)[:, AT], memory.after(other)[:, TAKEN].clone()
    place = next(one for one in memory.parts if one.name == part)
    donor[:, place.start : place.stop] = own[:, place.start : place.stop]
    wrong = memory.logits(donor, row[:, AT + 1 :])
    assert (wrong - expected)[:, 0].abs().max() > 1e-3 * expected.abs().max()


def test_parts_lie_side_by_side_and_fill_the_vector() -> None:
    memory = CounterMemory(load_counter("mod10/lstm-2L"))
    assert [part.label for part in memory.parts] == ["state of layer 0", "state of layer 1"]
    assert [(part.start, part.stop) for part in memory.parts] == [(0, 256), (256, 512)]
    assert memory.after(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 512)


def test_attention_counters_have_no_memory() -> None:
    with pytest.raises(NotApplicable, match="no state"):
        CounterMemory(load_counter("mod10/ape-2L"))
