"""Hand-built S4 counters are right in both forms of the recurrence, and say what they are."""

from pathlib import Path

import pytest
import torch

from models import CountLensError, load_counter, save_counter
from probes.mechanism.handbuilt_modes import MECHANISMS, handbuilt_modes
from probes.mechanism.memory import CounterMemory
from training.evaluate import evaluating
from training.tasks import make_task


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["mod10", "mod7"])
def test_they_count_right_within_training_lengths_and_a_clock_for_ever(mechanism: str, name: str) -> None:
    task = make_task(name)
    rows = torch.full((1, 300 if mechanism == "clock" else task.train_length), task.vocab.id("a"))
    counter = handbuilt_modes(mechanism, task)
    with evaluating(counter):
        assert torch.equal(counter(rows, torch.zeros_like(rows)).argmax(-1), task.label(rows))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_recurrence_answers_as_the_convolution_does(mechanism: str) -> None:
    task = make_task("mod10")
    rows = torch.full((1, task.train_length), task.vocab.id("a"))
    memory = CounterMemory(handbuilt_modes(mechanism, task))
    assert torch.equal(memory.go_on(memory.after(rows)[:, 19], rows[:, 20:]), task.label(rows)[:, 20:])


def test_they_can_be_saved_and_say_that_they_were_built(tmp_path: Path) -> None:
    counter = handbuilt_modes("slow", make_task("mod10"))
    save_counter(tmp_path / "model.safetensors", counter, counter.info)
    again = load_counter(tmp_path / "model.safetensors")
    assert again.info.training["handbuilt"] == "slow"
    assert all(torch.equal(again.state_dict()[name], weights) for name, weights in counter.state_dict().items())


def test_other_tasks_and_mechanisms_are_refused() -> None:
    with pytest.raises(CountLensError, match="with bos"):
        handbuilt_modes("clock", make_task("mod10", bos=True))
    with pytest.raises(CountLensError, match="clock, slow, decoy, shared"):
        handbuilt_modes("pendulum", make_task("mod10"))
