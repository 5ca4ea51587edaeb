"""What follows the PID, what the answer, and what neither, planted and in hand-built counters."""

from collections.abc import Callable

import numpy as np
import pytest

from models import load_counter
from probes.mechanism.handbuilt import handbuilt_counter
from probes.reading.pid_or_answer import LEAST_SHARE, pid_or_answer, separate
from probes.result import NotApplicable
from probes.sites import Site
from training.tasks import make_task

SHIFTS, COLUMNS = np.meshgrid(np.arange(40), np.arange(40), indexing="ij")
PIDS = SHIFTS + COLUMNS
CODES = np.random.default_rng(0).normal(size=(3, 10, 16))
Sample = Callable[[np.random.Generator], np.ndarray]


def noise(generator: np.random.Generator, spread: float = 0.3) -> np.ndarray:
    return spread * generator.normal(size=(40, 40, 16))


@pytest.mark.parametrize(
    ("pid", "answer", "shift", "held"),
    [
        (1, 0, 0, "PID"),
        (0, 1, 0, "answer"),
        (0.5, 0.5, 0, "both"),
        (0.3, 0.7, 0, "both"),
        (0, 0, 1, "two-way"),
        (0.2, 0.2, 0.6, "two-way"),
        (0, 0, 0, "neither"),
    ],
)
def test_planted_codes_get_their_shares(pid: float, answer: float, shift: float, held: str) -> None:
    sizes = np.sqrt([pid, answer, shift])
    places = (PIDS % 10, COLUMNS % 10, SHIFTS % 10)
    signal = sum(size * code[place] for size, code, place in zip(sizes, CODES, places, strict=True))
    found = separate(signal + noise(np.random.default_rng(1)), 10)
    assert found.held == held
    for share, planted in ((found.pid, pid), (found.answer, answer), (found.two_way, shift)):
        assert share.value == pytest.approx(planted, abs=0.15)
        assert share.low <= share.value <= share.high


FALSE: dict[str, Sample] = {
    "noise": noise,
    "random walks along rows": lambda generator: noise(generator).cumsum(1),
    "a random walk over shifts": lambda generator: noise(generator).cumsum(0),
    "a trend over columns": lambda generator: COLUMNS[..., None] * generator.normal(size=16) + noise(generator),
    "a trend over PIDs": lambda generator: PIDS[..., None] * generator.normal(size=16) + noise(generator),
    "1 / n": lambda generator: 5 / (1 + COLUMNS[..., None]) * generator.normal(size=16) + noise(generator, 0.01),
    "another number for each row": lambda generator: generator.normal(size=(40, 1, 16)) + noise(generator),
    "another number for each column": lambda generator: generator.normal(size=(1, 40, 16)) + noise(generator),
    "another number for each PID": lambda generator: generator.normal(size=(79, 16))[PIDS] + noise(generator),
    "period 7": lambda generator: generator.normal(size=(7, 16))[PIDS % 7] + noise(generator),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_no_code_of_either_is_not_taken_for_one(name: str) -> None:
    found = [separate(FALSE[name](np.random.default_rng([4, seed])), 10).held for seed in range(40)]
    assert len(found) - found.count("neither") <= 5


def test_a_share_below_a_tenth_is_not_said_to_be_held() -> None:
    found = separate(np.sqrt(0.04) * CODES[0][PIDS % 10] + CODES[1][COLUMNS % 10], 10)
    assert 0 < found.pid.low < found.pid.value < LEAST_SHARE
    assert found.held == "answer"


def test_a_constant_state_follows_nothing() -> None:
    found = separate(np.ones((40, 40, 3)), 10)
    assert found.held == "neither"
    assert found.pid.high == found.answer.high == found.two_way.high == 0


def test_a_hand_built_counter_holds_pids_first_and_the_answer_at_last() -> None:
    task = make_task("mod10", bos=True)
    counter = handbuilt_counter("first_position", task)
    first, end = Site("resid_pre", 0), Site("mlp_out", counter.cfg.n_layers - 1)
    found = pid_or_answer(counter, task, [first, end])
    assert (found[first].held, found[end].held) == ("PID", "answer")
    assert found[first].answer.value < 0.05
    assert found[end].answer.value > 0.9
    assert found[end].pid.value < 0.05


def test_in_ape_the_last_layer_has_the_answer_and_the_embedding_the_pid() -> None:
    counter = load_counter("mod10/ape-2L")
    found = pid_or_answer(counter, make_task("mod10"), [Site("resid_pre", 0), Site("mlp_out", 1)])
    embedding, last = found.values()
    assert (embedding.held, last.held) == ("PID", "answer")
    assert embedding.answer.value < 0.05
    assert last.pid.value < 0.1
    assert last.answer.value > 0.5


@pytest.mark.parametrize(("name", "task"), [("mod10/lstm-1L", "mod10"), ("selective/nope-2L", "selective")])
def test_where_there_is_no_such_question_it_says_so(name: str, task: str) -> None:
    with pytest.raises(NotApplicable, match="only modular counters with position ids"):
        pid_or_answer(load_counter(name), make_task(task), [Site("resid_pre", 0)])


def test_too_few_shifts_are_refused() -> None:
    with pytest.raises(NotApplicable, match="30 of each"):
        pid_or_answer(load_counter("mod10/ape-2L"), make_task("mod10", train_length=100, ood_length=120), [])
