"""Hand-built counters of a task: full marks, a checkpoint that says what they are, and what is refused."""

from pathlib import Path

import pytest

from models import CountLensError, load_counter, save_counter
from models.handbuilt import MECHANISMS
from probes.mechanism.handbuilt import handbuilt_counter
from probes.result import task_of_counter
from training.evaluate import evaluate
from training.tasks import make_task


@pytest.mark.parametrize(("mechanism", "bos"), [*((name, True) for name in MECHANISMS), ("mean_position", False)])
@pytest.mark.parametrize("name", ["mod10", "mod2", "mod7"])
def test_full_marks_in_and_out_of_distribution(mechanism: str, bos: bool, name: str) -> None:
    task = make_task(name, bos=bos)
    scores = evaluate(handbuilt_counter(mechanism, task), task, "shifted", rows=128)
    assert (scores.ind, scores.ood) == (100, 100)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_checkpoint_says_what_it_is(mechanism: str, tmp_path: Path) -> None:
    task = make_task("mod10", bos=True)
    counter = handbuilt_counter(mechanism, task)
    save_counter(tmp_path / "model.safetensors", counter, counter.info)
    loaded = load_counter(tmp_path)
    assert loaded.info == counter.info
    assert task_of_counter(loaded) == (task, "shifted")
    assert loaded.info is not None
    assert "built by hand" in loaded.info.training["note"]


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(CountLensError, match=r"make_task\('mod10', bos=True\)"):
        handbuilt_counter("first_position", make_task("mod10"))
    with pytest.raises(CountLensError, match="selective is not modular counting"):
        handbuilt_counter("mean_position", make_task("selective"))
    with pytest.raises(CountLensError, match="did you mean mean_position"):
        handbuilt_counter("mean_pos", make_task("mod10"))
