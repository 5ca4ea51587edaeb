"""Learned directions find what was built in, and fail where a hypothesis is false."""

import pytest

from models import CountLensError
from probes.mechanism.alignment_search import alignment_search
from probes.mechanism.handbuilt import handbuilt_counter
from training.tasks import make_task

MOD5 = make_task("mod5", bos=True)


def test_it_learns_where_a_built_in_variable_is() -> None:
    found = alignment_search(
        handbuilt_counter("first_position", MOD5), "first_position", "first", rank=6, epochs=12, pairs=128
    )
    assert found.found
    assert found.accuracy.value > 0.9
    assert max(found.arbitrary.value, found.untrained.value) < 0.5
    assert list(found.to_frame()["learned"]) == ["counter", "arbitrary", "untrained"]


def test_it_does_not_learn_what_is_not_there() -> None:
    found = alignment_search(
        handbuilt_counter("first_position", MOD5), "mean_position", "mean", rank=6, epochs=12, pairs=128
    )
    assert not found.found
    assert "do not hold" in found.verdict.sentence


def test_what_does_not_exist_is_named() -> None:
    counter = handbuilt_counter("first_position", MOD5)
    with pytest.raises(CountLensError, match=r"unknown hypothesis 'first'.*first_position"):
        alignment_search(counter, "first", "first")
    with pytest.raises(CountLensError, match=r"unknown variable 'last': .*own, first"):
        alignment_search(counter, "first_position", "last")
    with pytest.raises(CountLensError, match="unknown place 'z'"):
        alignment_search(counter, "first_position", "first", kind="z")
    with pytest.raises(CountLensError, match=r"layers are 0\.\.0"):
        alignment_search(counter, "first_position", "first", layer=1)
