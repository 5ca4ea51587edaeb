"""Position ids moved by hand, on counters that are built to go by them in a known way."""

import pytest

from models import load_counter
from models.counter import Counter
from models.errors import CountLensError
from probes.mechanism.handbuilt import handbuilt_counter
from probes.mechanism.moved_row import Move, moved_row
from probes.reading.answers import predict_tokens
from probes.result import NotApplicable
from training.tasks import make_task

ROW = "<bos>" + " a" * 30


@pytest.fixture(scope="module")
def planted() -> Counter:
    """It answers own PID minus the first token's, modulo 10."""
    return handbuilt_counter("first_position", make_task("mod10", bos=True))


def test_a_counter_that_subtracts_the_first_position_follows_it(planted: Counter) -> None:
    found = moved_row(planted, ROW, [Move(1, 1, -3)], shift=20)
    assert found.paper == (None, *found.after.answers[1:])
    assert all(found.changed[1:])
    assert not found.changed[0]  # nothing is scored at bos
    assert found.after.answers[1:4] == ("4", "5", "6")
    assert found.before.answers[1:4] == ("1", "2", "3")
    assert found.verdict.sentence.startswith("30 of 30 answers change")
    assert "30 answers would differ from the count, and 30 of them are given" in found.verdict.sentence


def test_where_all_positions_move_alike_nothing_changes(planted: Counter) -> None:
    found = moved_row(planted, ROW, [Move(1, 31, 10)], shift=5)
    assert found.after.position_ids == tuple(range(15, 46))
    assert not any(found.changed)
    assert found.verdict.sentence == "0 of 30 answers change."


def test_a_token_that_is_moved_alone_changes_only_its_own_answer(planted: Counter) -> None:
    found = moved_row(planted, ROW, [Move(8, 8, 2)])
    assert [at for at, changed in enumerate(found.changed) if changed] == [7]
    frame = found.to_frame().set_index("position")
    assert (frame.loc[8, "position_id"], frame.loc[8, "moved_to"]) == (7, 9)
    assert (frame.loc[8, "right"], frame.loc[8, "after"]) == ("7", "9")


def test_a_counter_with_another_anchor_does_not_follow_the_first_token() -> None:
    planted = handbuilt_counter("mean_position", make_task("mod10", bos=True))
    found = moved_row(planted, ROW, [Move(1, 1, 3)])
    assert found.paper is not None
    followed = [said == expected for said, expected in zip(found.after.answers[16:], found.paper[16:], strict=True)]
    assert sum(followed) < len(followed) / 2


def test_the_paper_has_no_equation_for_tasks_that_are_not_modular() -> None:
    found = moved_row(load_counter("selective/ape-2L"), "1 2 1", [Move(1, 1, 1)])
    assert found.paper is None
    assert list(found.to_frame().paper) == [None] * 3


def test_moves_out_of_the_row_or_the_range_are_refused(planted: Counter) -> None:
    with pytest.raises(CountLensError, match="tokens 30 to 40 are not in the row: it has 1 to 31"):
        moved_row(planted, ROW, [Move(30, 40, 1)])
    with pytest.raises(CountLensError, match="position id -3 of token 1 is outside"):
        moved_row(planted, ROW, [Move(1, 1, -3)])
    with pytest.raises(CountLensError, match="2 position ids for 31 tokens"):
        predict_tokens(planted, ROW, position_ids=[1, 2])
    with pytest.raises(NotApplicable, match="no position ids"):
        moved_row(load_counter("mod10/lstm-1L"), "a a", [Move(1, 1, 1)])
