"""False alarms are as rare as they are said to be, and a surplus says what the best null leaves open."""

import numpy as np
import pytest
import torch

from probes.mechanism import grades
from probes.mechanism.grades import ALPHA, constant_null, grade, permuted_null, surplus
from probes.stats import Interval, share_interval

DRAWS = 1000


def draw(generator: torch.Generator, skewed: bool, pairs: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers and predictions that are independent; skewed: some answers are likelier than others."""
    weights = torch.arange(1.0, 11.0) if skewed else torch.ones(10)
    answers, predicted = (torch.multinomial(weights, pairs, True, generator=generator) for _ in range(2))
    return answers, predicted


@pytest.mark.parametrize("skewed", [False, True])
def test_of_a_thousand_null_draws_one_in_twenty_is_significant_and_fewer_are_graded(
    skewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grades, "PERMUTATIONS", 199)
    generator, tells = torch.Generator().manual_seed(0), torch.ones(120, dtype=torch.bool)
    significant = graded = 0
    for seed in range(DRAWS):
        answers, predicted = draw(generator, skewed)
        null, p_value = permuted_null(answers, predicted, tells, seed)
        significant += p_value < ALPHA
        graded += surplus(share_interval(answers == predicted), [null]) > 0
    assert 0.02 < significant / DRAWS < 0.07
    assert graded / DRAWS < ALPHA


def test_a_share_that_is_surely_above_its_null_is_significant_and_graded() -> None:
    answers, predicted = draw(torch.Generator().manual_seed(0), skewed=False)
    answers[:60] = predicted[:60]
    null, p_value = permuted_null(answers, predicted, torch.ones(120, dtype=torch.bool), 0)
    assert p_value < 0.01
    assert null.value == pytest.approx(0.1, abs=0.05)
    assert grade(surplus(share_interval(answers == predicted), [null])) in ("weak", "partial")


def test_a_null_that_says_one_thing_often_is_not_beaten_by_saying_it() -> None:
    """Where one answer is likely on the whole, other pairs' predictions hit as often."""
    answers, predicted = torch.full((100,), 3), torch.full((100,), 3)
    null, p_value = permuted_null(answers, predicted, torch.ones(100, dtype=torch.bool), 0)
    assert (null.value, p_value) == (1, 1)
    assert grade(surplus(share_interval(answers == predicted), [null])) == "none"


def test_without_a_telling_pair_nothing_is_known() -> None:
    null, p_value = permuted_null(*draw(torch.Generator(), False), torch.zeros(120, dtype=torch.bool), 0)
    assert (null, p_value) == (Interval(0.0, 0.0, 1.0), 1.0)


def test_the_best_null_counts() -> None:
    share = Interval(0.9, 0.85, 0.95)
    assert surplus(share, [Interval(0.1, 0.0, 0.2)]) > surplus(
        share, [Interval(0.1, 0.0, 0.2), Interval(0.6, 0.5, 0.7)]
    )
    assert surplus(Interval(1.0, 1.0, 1.0), [Interval(0.5, 0.4, 0.6)]) == 1
    assert surplus(Interval(0.0, 0.0, 0.0), [Interval(1.0, 1.0, 1.0)]) == -1  # and no less


def test_one_answer_said_everywhere_is_as_good_as_the_likeliest() -> None:
    assert constant_null(torch.tensor([1, 1, 2, -100])).value == 0.5
    assert np.isclose(constant_null(torch.tensor([4, 4, 4])).high, 1)
