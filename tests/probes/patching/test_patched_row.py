"""One patch on a counter that was built by hand: what it changes is known."""

import pytest

from models import load_counter
from models.errors import CountLensError
from models.transformer import Transformer
from probes.mechanism.handbuilt import handbuilt_counter
from probes.patching.pairs import pair_patch
from probes.patching.patched_row import patched_row
from training.tasks import make_task


@pytest.fixture(scope="module")
def counter() -> Transformer:
    """It subtracts bos' position from its own."""
    return handbuilt_counter("first_position", make_task("mod10", bos=True))


def test_the_first_tokens_position_is_in_every_later_answer(counter: Transformer) -> None:
    found = patched_row(counter, "shift", "resid_pre", "noise", layer=0, pos=0, length=12)
    assert found.answers[1:] == found.labels[1:]
    assert found.labels[0] is None
    assert all(found.changed[1:])
    assert "changes 1" in found.verdict.sentence


def test_another_tokens_position_is_in_its_own_answer_alone(counter: Transformer) -> None:
    found = patched_row(counter, "shift", "resid_pre", "noise", layer=0, pos=5, length=12)
    assert [pos for pos, changed in enumerate(found.changed) if changed] == [5]
    assert found.verdict.sentence == (
        "The patch of resid_pre at layer 0 pos 5 changes 1 of 13 answers, first at position 5; "
        "12 were right before and 11 are after it."
    )


def test_denoising_brings_the_partners_answers() -> None:
    counter = load_counter("selective/lstm-1L")
    found = patched_row(counter, "swap", "embed", "denoise", pos=8, length=20, batch=8)
    differ = [pos for pos, pair in enumerate(zip(found.tokens, found.other_tokens, strict=True)) if pair[0] != pair[1]]
    assert differ == [8]
    assert found.patched == found.other_labels
    assert found.answers == found.labels


def test_a_row_agrees_with_the_sweep_over_all_rows() -> None:
    counter = load_counter("mod10/ape-2L")
    grid = pair_patch(counter, "shift", ["z"], "accuracy", "noise", batch=4, length=15).grids["z"]
    found = patched_row(counter, "shift", "z", "noise", layer=0, pos=0, head=1, row=2, batch=4, length=15)
    right = sum(label == said for label, said in zip(found.labels, found.patched, strict=True))
    assert right / 15 == pytest.approx(grid.by_row[0, 0, 1, 2])


def test_one_head_at_all_positions_has_no_position(counter: Transformer) -> None:
    found = patched_row(counter, "shift", "head_z", "noise", layer=0, head=0, length=12)
    assert found.cell == {"layer": 0, "head": 0}
    assert found.to_frame().columns.tolist()[0] == "pos"


def test_what_cannot_be_patched_is_said(counter: Transformer) -> None:
    with pytest.raises(CountLensError, match="unknown direction 'up'"):
        patched_row(counter, "shift", "resid_pre", "up", layer=0, pos=0)
    with pytest.raises(CountLensError, match=r"row 16 is outside 0..15"):
        patched_row(counter, "shift", "resid_pre", "noise", layer=0, pos=0, row=16)
    with pytest.raises(CountLensError, match="pos 40 is outside"):
        patched_row(counter, "shift", "resid_pre", "noise", layer=0, pos=40, length=12)
    with pytest.raises(CountLensError, match="rows of equal length"):
        patched_row(counter, "one_more", "resid_pre", "noise", layer=0, pos=0, length=12)
