"""Tasks: the labeller against the paper's own files, samplers against the labeller, and the sampler's law."""

import json
import math
from collections import Counter as Tally
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import CountLensError
from models.info import CheckpointInfo
from training.tasks import BOS, NOT_SCORED, PAD, TASKS, Task, make_task, task_of_checkpoint, task_settings
from training.tasks.compositions import sample_compositions

PAPER_DATA = Path(__file__).parents[1] / "paper_data"
FILES = {
    "vanilla.val": ("vanilla_succession", False),
    "vanilla.ood": ("vanilla_succession", False),
    "succession.test": ("vanilla_succession", False),
    "helper_main.val": ("helper", False),
    "helper_aux.test": ("helper", False),
    "helper_shifted_main.val": ("helper_shifted", False),
    "helper_shifted_aux.test": ("helper_shifted", False),
    "shifted_start.val": ("shifted_start", False),
    "mod10.val": ("mod10", False),
    "mod10.ood": ("mod10", False),
    "mod10_bos.val": ("mod10", True),
    "selective.val": ("selective", False),
    "selective_bos.val": ("selective", True),
    "selective_mod4.val": ("selective_mod4", False),
}


@pytest.mark.parametrize("file", FILES)
def test_the_labeller_agrees_with_every_line_of_the_papers_files(file: str) -> None:
    path = PAPER_DATA / f"{file}.jsonl"
    name, bos = FILES[file]
    task = make_task(name, bos=bos)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines
    for tokens, labels in lines:
        assert task.label_tokens(tokens) == labels


def test_every_file_of_the_paper_is_checked() -> None:
    assert {path.stem for path in PAPER_DATA.glob("*.jsonl")} == set(FILES)


def expected_labels(task: Task, tokens: list[str]) -> list[str]:
    """The paper's definition of each task, token by token: slow, and written apart from the labellers."""
    prefix = ["-1"] if tokens[0] == BOS else []
    tokens = tokens[len(prefix) :]
    kind = task.name.rstrip("0123456789")
    if kind == "vanilla_succession":
        rows = [str(i + 1) if token == "a" else str(int(token) + 1) for i, token in enumerate(tokens)]
    elif kind in ("helper", "helper_shifted", "shifted_start"):
        rows = [str(int(tokens[0]) + i) for i in range(len(tokens))]
        rows[0] = tokens[0] if "<b>" in tokens else "-1"
    elif kind == "mod":
        rows = [str(i % task.base + 1) for i in range(len(tokens))]
    elif kind in ("selective", "selective_mod"):
        rows = [str(tokens[:i].count(token) % getattr(task, "base", 1000)) for i, token in enumerate(tokens)]
    else:
        rows = ["T"] + ["F"] * (len(tokens) - 1)
    return prefix + rows


def variants() -> list[Task]:
    plain = [make_task(name) for name in TASKS]
    with_bos = [make_task(task.name, bos=True) for task in plain if task.takes_bos]
    scaled = [
        make_task("shifted_start", train_length=25, ood_length=200),
        make_task("mod7"),
        make_task("selective_mod3"),
    ]
    return plain + with_bos + scaled


VARIANTS = variants()


@pytest.mark.parametrize("task", VARIANTS, ids=str)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_sampler_and_labeller_agree_with_the_definition(task: Task, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for split in ("train", *task.splits):
        rows = task.sample(split, 16, generator)
        labels = task.label(rows.token_ids)
        for token_ids, label_ids, length in zip(rows.token_ids, labels, rows.lengths.tolist(), strict=True):
            tokens = task.vocab.decode(token_ids.tolist())
            assert tokens[length:] == [PAD] * (len(tokens) - length)
            assert PAD not in tokens[:length]
            expected = expected_labels(task, tokens[:length]) + ["-1"] * (len(tokens) - length)
            assert task.vocab.decode(label_ids.tolist()) == expected


@pytest.mark.parametrize("task", VARIANTS, ids=str)
def test_rows_have_the_lengths_of_their_split(task: Task, generator: torch.Generator) -> None:
    low, high = task.ood_lengths
    ind, ood = task.sample("ind", 500, generator), task.sample("ood", 2000, generator)
    assert ind.lengths.max() == task.train_length + task.prefix
    assert set(ood.lengths.tolist()) == set(range(low + task.prefix, high + task.prefix + 1))
    scored = task.scored("ood", task.label(ood.token_ids))
    if not task.name.startswith("first_tok"):
        assert not scored[:, : task.train_length + task.prefix].any()
        assert scored[:, task.train_length + task.prefix].all()
    assert (task.vocab.decode([int(ind.token_ids[0, 0])]) == [BOS]) == task.bos


def test_first_token_tasks_are_scored_at_the_first_token_only(generator: torch.Generator) -> None:
    for name in ("first_tok_homogeneous", "first_tok_heterogeneous"):
        task = make_task(name)
        for split in ("ind", "ood"):
            mask = task.scored(split, task.label(task.sample(split, 8, generator).token_ids))
            assert mask[:, 0].all()
            assert not mask[:, 1:].any()


def test_training_mixes_auxiliary_rows_half_and_half(generator: torch.Generator) -> None:
    task = make_task("helper")
    rows = task.sample("train", 4000, generator)
    helper = (rows.token_ids == task.vocab.id("<b>")).any(1)
    assert helper.float().mean().item() == pytest.approx(0.5, abs=0.04)


def test_starts_cover_every_number_that_still_fits(generator: torch.Generator) -> None:
    task = make_task("shifted_start")
    assert set(task.sample("ind", 5000, generator).token_ids[:, 0].tolist()) == set(range(51))
    ood = task.sample("ood", 5000, generator)
    assert (ood.token_ids[:, 0] + ood.lengths - 1).max() == 100


def test_compositions_are_uniform(generator: torch.Generator) -> None:
    """Chi-squared over all compositions of 6 into 4 parts of at most 3, against an enumeration."""
    drawn = sample_compositions(torch.full((40_000,), 6), 4, 3, generator, largest_total=6)
    counts = Tally(map(tuple, drawn.tolist()))
    possible = [parts for parts in product(range(4), repeat=4) if sum(parts) == 6]
    assert set(counts) == set(possible)
    expected = 40_000 / len(possible)
    chi_squared = sum((counts[parts] - expected) ** 2 / expected for parts in possible)
    freedom = len(possible) - 1
    assert chi_squared < freedom + 4 * math.sqrt(2 * freedom)


def test_selective_counts_follow_the_papers_rejection_sampler(generator: torch.Generator) -> None:
    """How often a kind occurs has the law of stars and bars with rejection, which is slow but plainly right."""
    task = make_task("selective")
    rows = task.sample("ind", 4000, generator).token_ids
    ours = torch.stack([(rows == kind).sum(1) for kind in range(10)], 1)
    bars = torch.rand(40_000, 59, generator=generator).argsort(1)[:, :9].sort(1).values
    edges = torch.cat([torch.full((len(bars), 1), -1), bars, torch.full((len(bars), 1), 59)], 1)
    theirs = edges.diff(dim=1) - 1
    theirs = theirs[(theirs <= 10).all(1)]
    assert len(theirs) > 2000
    for count in range(11):
        ours_share, theirs_share = ((x == count).float().mean().item() for x in (ours, theirs))
        assert ours_share == pytest.approx(theirs_share, abs=0.012)
    assert (ours.sum(1) == 50).all()


def test_order_within_a_selective_row_is_shuffled(generator: torch.Generator) -> None:
    rows = make_task("selective").sample("ind", 4000, generator).token_ids
    assert (rows[:, 0] == 0).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert (rows[:, -1] == 0).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_a_number_is_its_own_token_id() -> None:
    for task in VARIANTS:
        numbers = [int(token) for token in task.vocab.tokens if token.isdigit()]
        assert numbers == list(range(len(numbers)))


def test_settings_make_the_same_task_again() -> None:
    for task in VARIANTS:
        assert make_task(**json.loads(json.dumps(task_settings(task)))) == task


def test_counts_without_a_number_word_are_not_scored() -> None:
    labels = make_task("shifted_start").label(torch.tensor([[99, 102, 102, 102]]))
    assert labels.tolist() == [[NOT_SCORED, 100, NOT_SCORED, NOT_SCORED]]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mod_10", {}, "unknown task 'mod_10': did you mean mod10"),
        ("mod1", {}, "base=1: must be at least 2"),
        ("helper", {"bos": True}, "helper has no bos variant"),
        ("mod10", {"train_length": 50, "ood_length": 50}, "leaves no row beyond train_length=50"),
        ("mod10", {"train_length": 0}, "train_length=0: must be at least 1"),
        ("selective", {"ood_length": 200}, "10 kinds of at most 10 tokens cannot fill rows of 199"),
        ("mod10", {"kinds": 3}, "mod10 has no setting kinds"),
        ("mod10", {"bos": 1}, "bos=1: must be bool"),
        ("mod10", {"train_length": "x"}, "train_length='x': must be int"),
        ("mod10", {"ood_length": 10**9}, "ood_length=1000000000: must be at least 1 and at most 65,536"),
        ("mod" + "9" * 19, {}, "must be at least 2 and at most 10,000"),
        ("mod" + "9" * 5000, {}, "unknown task"),
        ("selective_mod0", {}, "base=0: must be at least 2"),
        ("selective", {"n_kinds": 0}, "n_kinds=0: must be at least 1"),
        ("selective", {"max_count": 10**4, "ood_length": 10**4}, "need a table of 1,000,000,000 numbers"),
        ("first_tok_heterogeneous", {"ood_length": 10**4}, "need a table of 1,000,000,000 numbers"),
    ],
)
def test_tasks_that_cannot_be_are_refused(name: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        make_task(name, **settings)


def test_a_checkpoint_with_a_task_of_another_vocabulary_is_refused() -> None:
    settings = task_settings(make_task("mod10"))
    assert task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 103}, task=settings)) == make_task("mod10")
    assert task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 103})) is None
    with pytest.raises(CountLensError, match="mod10 has 103 tokens, but its model has d_vocab=5"):
        task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 5}, task=settings))


def test_tokens_outside_the_vocabulary_are_refused_with_the_near_ones() -> None:
    with pytest.raises(CountLensError, match=r"unknown token '<c>': did you mean <b>"):
        make_task("helper").label_tokens(["1", "<c>"])
    with pytest.raises(CountLensError, match=r"All: 0\.\.100, <pad>, a"):
        make_task("mod10").label_tokens(["zzz"])
