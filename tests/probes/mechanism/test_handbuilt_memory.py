"""Hand-built recurrent counters are right, and remember what they say."""

from pathlib import Path

import pytest
import torch

from models import CountLensError, load_counter, save_counter
from probes.mechanism.handbuilt_memory import MECHANISMS, handbuilt_memory
from probes.mechanism.memory import CounterMemory
from training.evaluate import evaluating
from training.tasks import make_task


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["mod10", "mod7"])
def test_they_count_right_within_training_lengths_and_a_ring_for_ever(mechanism: str, name: str) -> None:
    task = make_task(name)
    length = 300 if mechanism == "ring" else task.train_length
    rows = torch.full((1, length), task.vocab.id("a"))
    counter = handbuilt_memory(mechanism, task)
    with evaluating(counter):
        assert torch.equal(counter(rows, torch.zeros_like(rows)).argmax(-1), task.label(rows))


def test_a_ring_has_ten_places_and_idle_units_that_do_not_come_back() -> None:
    task = make_task("mod10")
    memories = CounterMemory(handbuilt_memory("ring", task)).after(torch.full((1, 40), task.vocab.id("a")))[0]
    torch.testing.assert_close(memories[10:20, :10], memories[20:30, :10], atol=1e-6, rtol=0)
    assert len(memories[10:20, :10].round().unique(dim=0)) == 10
    assert (memories[10:20, 10:] - memories[20:30, 10:]).abs().max() > 0.1


def test_they_can_be_saved_and_say_that_they_were_built(tmp_path: Path) -> None:
    counter = handbuilt_memory("curve", make_task("mod10"))
    save_counter(tmp_path / "model.safetensors", counter, counter.info)
    again = load_counter(tmp_path / "model.safetensors")
    assert again.info.training["handbuilt"] == "curve"
    assert all(torch.equal(again.state_dict()[name], weights) for name, weights in counter.state_dict().items())


def test_other_tasks_and_mechanisms_are_refused() -> None:
    with pytest.raises(CountLensError, match="with bos"):
        handbuilt_memory("ring", make_task("mod10", bos=True))
    with pytest.raises(CountLensError, match="selective"):
        handbuilt_memory("ring", make_task("selective"))
    with pytest.raises(CountLensError, match="ring, curve, table"):
        handbuilt_memory("spiral", make_task("mod10"))
