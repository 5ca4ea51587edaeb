"""Rows to probe: the same rows as an evaluation draws, and what one answer gets on them."""

import pytest
import torch

from models import TransformerConfig, build_counter
from probes.inputs.rows import constant_share, draw_rows
from training.tasks import make_task


@pytest.mark.parametrize(
    ("name", "expected"), [("vanilla_succession", 2.0), ("first_tok_homogeneous", 0.0), ("helper", 2.0)]
)
def test_one_answer_gets_its_share_of_the_scored_labels(name: str, expected: float) -> None:
    """For the first-token task that answer is "no", and only the first token is scored."""
    task = make_task(name)
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    batch = draw_rows(counter, task, "shifted", "ind", 20, 0)
    assert len(batch.token_ids) < 21
    assert batch.weights.sum() == 20
    assert constant_share(batch, task.scored("ind", batch.label_ids)) == pytest.approx(expected)


def test_beyond_the_border_that_answer_is_one_of_those_beyond_it() -> None:
    """Every OOD row of the helper task passes 52; the counts up to 51, more frequent still, are not scored."""
    task = make_task("helper")
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    batch = draw_rows(counter, task, "shifted", "ood", 20, 0)
    scored = task.scored("ood", batch.label_ids)
    tokens = float((scored * batch.weights[:, None]).sum())
    assert constant_share(batch, scored) == pytest.approx(100 * 20 / tokens)


def test_rows_that_differ_in_positions_only_are_one_on_request() -> None:
    task = make_task("helper")
    counter = build_counter(TransformerConfig(task.vocab.size, "ape"), torch.Generator())
    assert len(draw_rows(counter, task, "shifted", "ind", 20, 0).token_ids) > 1
    assert len(draw_rows(counter, task, "shifted", "ind", 20, 0, ignore_positions=True).token_ids) == 1
