"""Turned waves: all of them together are a moved token, none of them is nothing."""

import pytest
import torch

from models import CheckpointInfo, TransformerConfig, build_counter
from models.transformer import Transformer
from probes.result import NotApplicable
from probes.studies import turned_waves
from probes.studies.turned_waves import turn_waves
from training.tasks import make_task, task_settings

TASK = make_task("mod5", bos=True, train_length=12, ood_length=20)


def lively(position: str = "rope") -> Transformer:
    """A counter with large random weights."""
    cfg = TransformerConfig(TASK.vocab.size, position, init_std=0.5, periods=(5.0,) if position == "rope" else None)
    counter = build_counter(cfg, torch.Generator().manual_seed(3)).eval()
    counter.info = CheckpointInfo("transformer", {}, task=task_settings(TASK), policy="shifted")
    return counter


def test_turning_all_waves_is_moving_the_token() -> None:
    counter = lively()
    row = torch.tensor(TASK.vocab.encode(["<bos>", *"a" * 12]))
    turns = torch.tensor([0, 1, 3])
    answers = turned_waves._answers(counter, row, turns, range(8))
    for turn, answer in zip(turns, answers, strict=True):
        # All the others keep their distances, and bos comes nearer by as many places.
        position_ids = torch.arange(13) + 20
        position_ids[0] += turn
        assert torch.equal(counter(row[None], position_ids[None]).argmax(-1)[0][1:], answer[1:])
    assert not torch.equal(answers[0], answers[2])


def test_turning_a_wave_by_its_whole_period_changes_nothing_and_another_wave_does() -> None:
    counter = lively()
    row = torch.tensor(TASK.vocab.encode(["<bos>", *"a" * 12]))
    turns = torch.tensor([0, 5])
    assert torch.equal(*turned_waves._answers(counter, row, turns, [0]))
    assert not torch.equal(*turned_waves._answers(counter, row, turns, [1, 2, 3]))


def test_a_counter_whose_answer_is_its_distance_to_bos_follows_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: answers that are the count less the turn; and a falsehood: answers that ignore it."""
    counts = torch.arange(13)[None] - 1

    def planted(counter: Transformer, row: torch.Tensor, turns: torch.Tensor, waves: object) -> torch.Tensor:
        return TASK.answer_ids(counts - turns[:, None])

    monkeypatch.setattr(turned_waves, "_answers", planted)
    found = turn_waves(lively(), [0])
    assert found.share == 1
    assert found.turns.tolist() == [1, 2, 3, 4]
    assert int(found.is_inside[3].sum()) == 8  # turned by 4, the first four tokens would count below 1
    monkeypatch.setattr(turned_waves, "_answers", lambda *args: TASK.answer_ids(counts + 0 * args[2][:, None]))
    assert turn_waves(lively(), [0]).share == 0


def test_a_counter_without_rotation_has_no_waves_to_turn() -> None:
    with pytest.raises(NotApplicable, match="rotary counters of modular counting"):
        turn_waves(lively("ape"), [0])
