"""Edits of the first token at chosen places: a counter built to read bos in one head, and heads that write nothing."""

import numpy as np
import pytest
import torch

from models import Counter, CountLensError, load_counter
from probes.ablation.chosen_edits import EDITS, STATE_EDITS, chosen_edits
from probes.mechanism.handbuilt import handbuilt_counter
from training.tasks import make_task


@pytest.fixture(scope="module")
def reads_bos() -> Counter:
    """A counter that takes its start from bos, in its only head."""
    return handbuilt_counter("first_position", make_task("mod10", bos=True))


@pytest.fixture(scope="module")
def one_silent_head() -> Counter:
    """A trained counter with four heads a layer, of which head 0.1 writes nothing."""
    counter = load_counter("mod10-bos/rope-2L")
    with torch.no_grad():
        counter.blocks[0].attn.W_O[1] = 0
    return counter


@pytest.mark.parametrize("edit", EDITS)
def test_a_counter_that_reads_bos_breaks_without_it_and_not_without_the_second_token(
    edit: str, reads_bos: Counter
) -> None:
    found = chosen_edits(reads_bos, edit, rows=4)
    assert found.mean(found.clean) == found.mean(found.control) == (100, 100)
    assert max(found.mean(found.edited)) < 30
    assert "<bos>" in found.verdict.sentence


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_nowhere_changes_nothing(edit: str, reads_bos: Counter) -> None:
    found = chosen_edits(reads_bos, edit, places=(), rows=4)
    np.testing.assert_array_equal(found.edited, found.clean)
    np.testing.assert_array_equal(found.control, found.clean)
    assert "nowhere" in found.verdict.sentence


@pytest.mark.parametrize("edit", EDITS)
def test_only_the_chosen_head_is_edited(edit: str, one_silent_head: Counter) -> None:
    silent = chosen_edits(one_silent_head, edit, places=((0, 1),), rows=4)
    np.testing.assert_array_equal(silent.edited, silent.clean)
    others = chosen_edits(one_silent_head, edit, places=((0, 0), (0, 2), (0, 3)), rows=4)
    assert not np.array_equal(others.edited, others.clean, equal_nan=True)
    layer = chosen_edits(one_silent_head, edit, places=((0, None),), rows=4)
    np.testing.assert_array_equal(layer.edited, others.edited)


def test_everywhere_is_every_layer(one_silent_head: Counter) -> None:
    everywhere = chosen_edits(one_silent_head, "cut", rows=4)
    by_layer = chosen_edits(one_silent_head, "cut", places=((0, None), (1, None)), rows=4)
    np.testing.assert_array_equal(everywhere.edited, by_layer.edited)
    assert everywhere.places == "everywhere"
    assert by_layer.places == "in layer 0, layer 1"


def test_a_reset_state_starts_the_count_again() -> None:
    found = chosen_edits(load_counter("mod10/lstm-1L"), "zeroed", rows=4)
    assert found.mean(found.clean) == (100, 100)
    assert found.edited[1] == 0  # it is one behind from the second token on
    assert found.control[0] == 100
    assert found.control[2] == 0


def test_every_position_of_the_longest_rows_is_in_the_table() -> None:
    frame = chosen_edits(load_counter("mod10-bos/nope-2L"), "cut", rows=4).to_frame()
    assert list(frame.position) == list(range(2, 102))  # bos has no label
    assert set(frame.rows) == {4}


@pytest.mark.parametrize(
    ("name", "edit", "places", "says"),
    [
        ("mod10/lstm-1L", "cut", None, "unknown edit of LSTM 'cut': All: " + ", ".join(STATE_EDITS)),
        ("mod10/lstm-1L", "zeroed", ((0, 0),), "layer 0, head 0 is not in this counter"),
        ("mod10/spe-2L", "cut", ((2, None),), "layer 2 is not in this counter: it has 2 layers"),
    ],
)
def test_what_a_counter_lacks_is_refused(
    name: str, edit: str, places: tuple[tuple[int, int | None], ...] | None, says: str
) -> None:
    with pytest.raises(CountLensError, match=says):
        chosen_edits(load_counter(name), edit, places)
