"""Single swaps, on counters that are built to follow one algorithm and not another."""

import pytest

from models import load_counter
from models.counter import Counter
from models.errors import CountLensError
from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.hypotheses import hypotheses_of
from probes.mechanism.swapped_tokens import SwappedTokens, swapped_tokens
from probes.mechanism.verdict import MOVED, mechanisms
from probes.result import NotApplicable
from training.tasks import make_task


@pytest.fixture(scope="module")
def planted() -> Counter:
    """It answers own PID minus the first token's, modulo 10."""
    return handbuilt_counter("first_position", make_task("mod10", bos=True))


@pytest.fixture(scope="module")
def found(planted: Counter) -> list[SwappedTokens]:
    """The swaps of every claim of the hypotheses that have some, at the places where they come out best."""
    result = mechanisms(planted, pairs=32)
    own = [tested for tested in result.hypotheses if not tested.swaps_of]
    return [
        swapped_tokens(planted, tested.name, claim.variable, claim.place, pairs=16)
        for tested in own
        for claim in tested.claims
        if claim.place and not claim.ignored and claim.variable != MOVED
    ]


def test_the_right_algorithm_predicts_every_swap_and_wrong_ones_few(found: list[SwappedTokens]) -> None:
    hits = {}
    for swaps in found:
        told = [token.after == token.predicted for token in swaps.tokens if token.tells]
        if told:
            hits.setdefault(swaps.hypothesis, []).append(sum(told) / len(told))
    assert min(hits["beginning"]) == 1
    assert any(min(shares) < 0.5 for name, shares in hits.items() if name != "beginning")


def test_a_prediction_follows_from_the_values_that_are_shown(found: list[SwappedTokens]) -> None:
    own = next(swaps for swaps in found if (swaps.hypothesis, swaps.variable) == ("beginning", "own"))
    for token in own.tokens:
        moved = int(token.right) + round(token.swapped_in - token.value)
        if token.predicted is not None:
            assert (int(token.predicted) - moved) % 10 == 0
        assert token.value == token.position_id
        assert token.before == token.right
    assert own.to_frame().columns[0] == "position"
    assert "come out as beginning predicts" in own.verdict.sentence


def test_names_that_are_none_are_refused(planted: Counter) -> None:
    with pytest.raises(CountLensError, match="unknown hypothesis"):
        swapped_tokens(planted, "magic", "own", "L0 q")
    with pytest.raises(CountLensError, match="is no variable of beginning"):
        swapped_tokens(planted, "beginning", "magic", "L0 q")
    with pytest.raises(CountLensError, match="is not sought at"):
        swapped_tokens(planted, "beginning", "own", "L9 q")
    with pytest.raises(NotApplicable, match="recurrent"):
        swapped_tokens(load_counter("mod10/lstm-1L"), "beginning", "own", "L0 q")
    assert "beginning" in hypotheses_of(planted, make_task("mod10", bos=True))  # type: ignore[arg-type]
