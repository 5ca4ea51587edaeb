"""What follows the PID, what the answer, and what neither, planted and in hand-built counters."""

import numpy as np
import pytest

from models import load_counter
from probes.mechanism.handbuilt import handbuilt_counter
from probes.reading.pid_or_answer import Separation, pid_or_answer, separate
from probes.result import NotApplicable
from probes.sites import Site
from training.tasks import make_task

SHIFTS, COLUMNS = np.meshgrid(np.arange(20), np.arange(50), indexing="ij")
PIDS, ANSWERS = ((SHIFTS + COLUMNS) % 10).ravel(), (COLUMNS % 10).ravel()
CODES = np.random.default_rng(0).normal(size=(2, 10, 16))


@pytest.mark.parametrize(("pid", "answer"), [(1, 0), (0, 1), (0.5, 0.5), (0, 0)])
def test_planted_codes_get_their_shares(pid: float, answer: float) -> None:
    noise = 0.1 * np.random.default_rng(1).normal(size=(1000, 16))
    x = np.sqrt(pid) * CODES[0][PIDS] + np.sqrt(answer) * CODES[1][ANSWERS] + noise
    found = separate(x, PIDS, ANSWERS)
    assert found.pid == pytest.approx(pid, abs=0.1)
    assert found.answer == pytest.approx(answer, abs=0.1)


def test_one_row_from_pid_0_cannot_tell_them_apart() -> None:
    """This is what the question of clusters by PID modulo 10 is asked on in the paper."""
    found = separate(CODES[0][PIDS[:50]], PIDS[:50], ANSWERS[:50])
    assert found == Separation(0.0, 0.0)


def test_a_constant_state_follows_nothing() -> None:
    assert separate(np.ones((1000, 3)), PIDS, ANSWERS) == Separation(0.0, 0.0)


def test_a_hand_built_counter_holds_pids_first_and_the_answer_at_last() -> None:
    task = make_task("mod10", bos=True)
    counter = handbuilt_counter("first_position", task)
    last = counter.cfg.n_layers - 1
    first, end = Site("resid_pre", 0), Site("mlp_out", last)
    found = pid_or_answer(counter, task, [first, end])
    assert found[first].answer < 0.05
    assert found[end].answer > 0.9
    assert found[end].pid < 0.05


def test_in_ape_the_last_layer_has_the_answer_and_the_embedding_the_pid() -> None:
    counter = load_counter("mod10/ape-2L")
    found = pid_or_answer(counter, make_task("mod10"), [Site("resid_pre", 0), Site("mlp_out", 1)])
    embedding, last = found.values()
    assert embedding.answer < 0.05 < embedding.pid
    assert last.pid < 0.1
    assert last.answer > 0.5


@pytest.mark.parametrize(("name", "task"), [("mod10/lstm-1L", "mod10"), ("selective/nope-2L", "selective")])
def test_where_there_is_no_such_question_it_says_so(name: str, task: str) -> None:
    with pytest.raises(NotApplicable, match="only modular counters with position ids"):
        pid_or_answer(load_counter(name), make_task(task), [Site("resid_pre", 0)])
