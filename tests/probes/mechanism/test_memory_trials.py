"""Trials know the right answers of both memories, and score what should change apart from what should stay."""

import pytest
import torch
from planted_memory import KindCounts, RandomTable

from probes.mechanism.memory_trials import FORMS, LATER, Trials, counted_memories, labels_after, spliced_trials
from probes.result import NotApplicable
from training.tasks import NOT_SCORED, make_task

GENERATOR = torch.Generator().manual_seed(0)


def test_a_score_is_the_lesser_of_what_should_change_and_what_should_stay() -> None:
    own, donor = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6, 7, 8]])
    trials = Trials(torch.zeros(1, 2), torch.zeros(1, 2), own, own, donor, torch.zeros(1, dtype=torch.long))
    claimed = torch.tensor([[5, 2, 7, 4]])
    scores = {
        "as claimed": trials.scores(claimed, claimed),
        "all of the donor's": trials.scores(donor, claimed),
        "all of its own": trials.scores(own, claimed),
        "half of each": trials.scores(torch.tensor([[5, 2, 3, 8]]), claimed),
    }
    assert {name: float(score) for name, score in scores.items()} == {
        "as claimed": 1.0,
        "all of the donor's": 0.0,
        "all of its own": 0.0,
        "half of each": 0.5,
    }


def test_modular_trials_differ_in_phase_and_round_and_know_their_answers() -> None:
    task = make_task("mod10")
    memory = RandomTable(task, seed=0)
    trials = FORMS["modular"].trials(task, memory, 30, GENERATOR)
    assert len(trials) == 30
    assert torch.equal(memory.go_on(trials.own, trials.next_ids), trials.own_labels)
    assert torch.equal(memory.go_on(trials.donor, trials.next_ids), trials.donor_labels)
    assert bool((trials.own_labels != trials.donor_labels).all())
    row = task.label(torch.full((1, 20), task.vocab.id("a")))
    assert torch.equal(labels_after(task, torch.tensor([7]))[0], row[0, 7 : 7 + LATER])


def test_selective_trials_read_two_kinds_in_turns_and_know_their_answers() -> None:
    task = make_task("selective")
    memory = KindCounts(task)
    trials = FORMS["selective"].trials(task, memory, 30, GENERATOR)
    assert torch.equal(memory.go_on(trials.own, trials.next_ids), trials.own_labels)
    assert torch.equal(memory.go_on(trials.donor, trials.next_ids), trials.donor_labels)
    assert bool((trials.own_labels != trials.donor_labels).all())
    assert not bool((trials.own_labels == NOT_SCORED).any() or (trials.donor_labels == NOT_SCORED).any())
    assert torch.equal(trials.next_ids[:, 0], torch.tensor(task.vocab.encode(task.kinds))[trials.about])
    assert bool((trials.next_ids[:, 0] != trials.next_ids[:, 1]).all())


def test_any_task_has_spliced_trials_with_their_right_answers() -> None:
    task = make_task("shifted_start")
    seen: list[torch.Tensor] = []

    class Recorder(KindCounts):
        def after(self, token_ids: torch.Tensor) -> torch.Tensor:
            seen.append(token_ids)
            return token_ids[:, :, None].expand(-1, -1, 40).float()

    trials = spliced_trials(task, Recorder(task), 12, torch.Generator().manual_seed(0))
    assert bool((trials.own_labels != trials.donor_labels).any(1).all())
    own = seen[0]
    for row, labels, later in zip(own, trials.own_labels, trials.next_ids, strict=True):
        known = labels[labels != NOT_SCORED]
        ends = [task.label(torch.cat([row[: end + 1], later])[None])[0, -LATER:] for end in range(len(row) - LATER)]
        assert any(torch.equal(right[labels != NOT_SCORED], known) for right in ends)


@pytest.mark.parametrize("train_length", [12, 16])
def test_rows_without_a_second_round_are_refused(train_length: int) -> None:
    task = make_task("mod10", train_length=train_length)
    with pytest.raises(NotApplicable, match="too short"):
        counted_memories(task, RandomTable(task, seed=0))
