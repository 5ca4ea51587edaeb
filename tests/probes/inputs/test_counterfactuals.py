"""Counterfactual pairs: the labeller confirms what each is said to change and to hold, for every task."""

from dataclasses import replace

import pytest
import torch
from pair_values import pair_values

from models import CheckpointInfo, CountLensError, TransformerConfig, build_counter
from models.config import LSTMConfig
from probes.inputs.counterfactuals import PAIRS, VARIABLES, Pair, counterfactual_pair
from probes.mechanism.handbuilt import handbuilt_counter
from probes.result import NotApplicable
from training.tasks import BOS, NOT_SCORED, TASKS, Task, make_task, task_settings

ALL_TASKS = [make_task(name) for name in TASKS] + [make_task("mod2")]
ALL_TASKS += [replace(task, bos=True) for task in ALL_TASKS if task.takes_bos]
SELECTIVE = ("selective", "selective_mod4")
WITH_BOS = {"vanilla_succession", "mod10", "selective", "selective_mod4", "mod2"}


def title(task: Task) -> str:
    return task.name + "+bos" * task.bos


def applicable(name: str, task: Task) -> bool:
    """Which pairs make sense for which task, written down by hand."""
    if name == "start":
        return task.name in ("shifted_start", "helper_shifted")
    if name == "swap":
        return task.name in SELECTIVE
    return task.bos if name.startswith("bos") else True


CASES = [(name, task) for name in PAIRS for task in ALL_TASKS]


def cases(wanted: bool) -> list[object]:
    chosen = [(name, task) for name, task in CASES if applicable(name, task) == wanted]
    return [pytest.param(name, task, id=f"{name}-{title(task)}") for name, task in chosen]


def contradictions(pair: Pair) -> list[str]:
    """What the rows do not do as the pair says."""
    wrong = []
    for variable in (*pair.changes, *pair.holds):
        clean, corrupted = pair_values(pair, variable)
        differs = (clean != corrupted).any(1)
        if not (differs.all() if variable in pair.changes else not differs.any()):
            wrong.append(variable)
    return wrong


@pytest.mark.parametrize(("name", "task"), cases(True))
def test_a_pair_changes_what_it_says_in_every_row_and_holds_the_rest_in_every_row(name: str, task: Task) -> None:
    pair = PAIRS[name](task, 128, 40, 0)
    assert pair.name == name
    assert contradictions(pair) == []
    absent = {"bos"} if not task.bos else set()
    absent |= {"start"} if not task.start_tokens else set()
    assert {*pair.changes, *pair.holds} == {*VARIABLES} - absent
    assert not {*pair.changes} & {*pair.holds}


@pytest.mark.parametrize(("name", "task"), cases(False))
def test_a_pair_that_makes_no_sense_for_a_task_says_why(name: str, task: Task) -> None:
    with pytest.raises(NotApplicable, match=task.name):
        PAIRS[name](task, 128, 8, 0)


@pytest.mark.parametrize(("name", "task"), cases(True))
def test_rows_are_whole_in_range_and_as_the_labeller_labels_them(name: str, task: Task) -> None:
    """A side without bos is labelled by the variant of the task without it."""
    pair = PAIRS[name](task, 128, 40, 1)
    longest = 0
    for side in (pair.clean, pair.corrupted):
        has_bos = task.bos and bool((side.token_ids[:, 0] == task.vocab.id(BOS)).all())
        assert torch.equal(side.label_ids, replace(task, bos=has_bos).label(side.token_ids))
        assert (side.token_ids != task.vocab.id("<pad>")).all()
        assert side.position_ids.min() >= 0
        assert side.position_ids.max() < 128
        assert (side.position_ids.diff(dim=1) == 1).all()
        before = has_bos + task.start_tokens
        assert (side.label_ids[:, before:] != NOT_SCORED).all()
        longest = max(longest, side.token_ids.shape[1] - before)
        if task.name in SELECTIVE:
            counts = (side.token_ids[:, :, None] == torch.arange(task.n_kinds)).sum(1)
            assert counts.max() <= task.max_count
    assert longest == (task.train_length // 2 if task.name == "helper_shifted" else task.train_length)


@pytest.mark.parametrize("name", PAIRS)
def test_shared_tokens_are_found_in_both_rows(name: str) -> None:
    task = make_task("shifted_start") if name == "start" else make_task("selective", bos=True)
    pair = PAIRS[name](task, 128, 10, 0)
    widths = [side.token_ids.shape[1] for side in (pair.clean, pair.corrupted)]
    offset = pair.shared[1] - pair.shared[0]
    assert offset == widths[1] - widths[0] == {"one_more": 1, "one_fewer": -1, "bos_dropped": -1}.get(name, 0)
    assert pair.same_length == (offset == 0)
    clean, corrupted = pair_values(pair, "labels")
    changed = (clean != corrupted) & (clean != NOT_SCORED) & (corrupted != NOT_SCORED)
    assert changed.shape == (10, widths[0] - pair.shared[0])
    assert bool(changed.any(1).all()) == ("labels" in pair.changes)
    assert bool(changed.any()) == ("labels" in pair.changes)


def differences(pair: Pair) -> torch.Tensor:
    clean, corrupted = pair_values(pair, "labels")
    return (corrupted - clean).unique()


def test_counts_move_by_as_much_as_they_should() -> None:
    assert differences(PAIRS["one_more"](make_task("vanilla_succession"), 128, 20, 0)).tolist() == [1]
    assert differences(PAIRS["one_fewer"](make_task("shifted_start"), 128, 20, 0)).tolist() == [-1]
    assert differences(PAIRS["bos_replaced"](make_task("mod10", bos=True), 128, 20, 0)).tolist() == [-9, 1]
    assert differences(PAIRS["one_more"](make_task("selective"), 128, 20, 0)).tolist() == [0, 1]
    pair = PAIRS["start"](make_task("shifted_start"), 128, 20, 0)
    starts = torch.stack(pair_values(pair, "start"))
    moved = starts[1] - starts[0]
    assert torch.equal(pair.corrupted.label_ids[:, 1:] - pair.clean.label_ids[:, 1:], moved.expand(-1, 50))


def test_another_shift_is_another_one_modulo_the_base() -> None:
    """Else the paper's algorithm would not see it: an offset by 10 changes no PID modulo 10."""
    clean, corrupted = pair_values(PAIRS["shift"](make_task("mod10"), 128, 200, 0), "shift")
    assert ((corrupted - clean) % 10 != 0).all()
    assert len((corrupted - clean).unique()) > 30
    clean, corrupted = pair_values(PAIRS["shift"](make_task("selective"), 128, 500, 0), "shift")
    assert ((corrupted - clean) % 10 == 0).any()


def test_a_swap_is_in_one_column_and_counts_at_the_last_token() -> None:
    pair = PAIRS["swap"](make_task("selective"), 128, 60, 3)
    differs = pair.clean.token_ids != pair.corrupted.token_ids
    assert (differs.sum(1) == 1).all()
    assert differs.any(0).sum() == 1
    last = pair.corrupted.label_ids[:, -1] - pair.clean.label_ids[:, -1]
    assert set(last.tolist()) == {-1, 1}


@pytest.mark.parametrize(("name", "task"), cases(True))
def test_the_same_seed_gives_the_same_pair_and_another_another(name: str, task: Task) -> None:
    again, other = (PAIRS[name](task, 128, 6, seed) for seed in (5, 6))
    pair = PAIRS[name](task, 128, 6, 5)
    for side in ("clean", "corrupted"):
        assert all(map(torch.equal, vars(getattr(pair, side)).values(), vars(getattr(again, side)).values()))
    assert not torch.equal(pair.clean.position_ids, other.clean.position_ids)


def test_a_pair_that_lies_is_found_out() -> None:
    pair = PAIRS["shift"](make_task("mod10"), 128, 8, 0)
    assert contradictions(replace(pair, changes=("labels",), holds=())) == ["labels"]
    assert contradictions(replace(pair, holds=("positions",), changes=())) == ["positions"]
    pids = torch.cat([pair.corrupted.position_ids[:4], pair.clean.position_ids[4:]])
    mixed = replace(pair, corrupted=replace(pair.corrupted, position_ids=pids))
    assert contradictions(mixed) == ["shift", "positions"]


def test_rows_can_be_shorter_or_longer_and_must_leave_room() -> None:
    task = make_task("mod10", bos=True)
    assert PAIRS["shift"](task, 128, 4, 0, length=6).clean.token_ids.shape == (4, 7)
    assert PAIRS["shift"](task, 256, 4, 0, length=200).clean.token_ids.shape == (4, 201)
    assert PAIRS["shift"](task, 53, 4, 0).clean.position_ids[:, 0].max() <= 1
    with pytest.raises(NotApplicable, match="51 tokens have one shift at max_position=51: give a smaller length"):
        PAIRS["shift"](task, 51, 4, 0)
    with pytest.raises(NotApplicable, match="do not fit max_position=20: give a smaller length"):
        PAIRS["one_more"](task, 20, 4, 0)
    with pytest.raises(CountLensError, match="length=1"):
        PAIRS["shift"](task, 128, 4, 0, length=1)
    with pytest.raises(NotApplicable, match="give another length"):
        PAIRS["swap"](make_task("selective"), 128, 50, 0, length=2)
    with pytest.raises(NotApplicable, match="no row of helper_shifted counts 101"):
        PAIRS["one_more"](make_task("helper_shifted"), 128, 4, 0, length=101)


def test_an_exact_counter_is_right_on_both_rows_of_a_pair() -> None:
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True))
    for name in ("shift", "one_more", "one_fewer"):
        pair = counterfactual_pair(name, counter)
        for side in (pair.clean, pair.corrupted):
            scored = side.label_ids != NOT_SCORED
            assert torch.equal(counter(side.token_ids, side.position_ids).argmax(-1)[scored], side.label_ids[scored])


def test_without_positions_there_is_no_other_shift() -> None:
    task = make_task("mod10")
    info = CheckpointInfo(family="", model={}, task=task_settings(task), policy="shifted")
    for cfg in (LSTMConfig(task.vocab.size, max_position=10), TransformerConfig(task.vocab.size, "nope")):
        counter = build_counter(cfg, torch.Generator())
        counter.info = info
        with pytest.raises(NotApplicable, match="ignores position ids"):
            counterfactual_pair("shift", counter)
        pair = counterfactual_pair("one_more", counter, batch=3)
        assert counter(pair.clean.token_ids, pair.clean.position_ids).shape[:2] == (3, 49)
    with pytest.raises(CountLensError, match="did you mean shift"):
        counterfactual_pair("shfit", counter)


def test_short_rows_are_shifted_no_further_than_in_training() -> None:
    for name, largest in (("mod10", 127 - 20), ("vanilla_succession", 127 - 50)):  # mod10 trains on short rows, too
        pair = PAIRS["shift"](make_task(name), 128, 2048, 0, 20)
        assert largest == max(int(inputs.position_ids[:, 0].max()) for inputs in (pair.clean, pair.corrupted))
