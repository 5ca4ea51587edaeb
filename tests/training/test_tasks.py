"""Tasks: the labeller against the paper's own files, samplers against the labeller, and the sampler's law."""

import json
import math
from collections import Counter as Tally
from itertools import product
from pathlib import Path

import pytest
import torch
from definitions import expected_labels
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import CountLensError
from models.header import CheckpointInfo
from training.tasks import (
    BOS,
    NOT_SCORED,
    PAD,
    TASKS,
    Selective,
    Split,
    Task,
    make_task,
    task_of_checkpoint,
    task_settings,
)
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
    shortest, longest = task.ood_lengths
    if task.name == "helper_shifted":
        shortest = task.ood_length - task.train_length  # from every start to the last number
    for split, (low, high) in (("ind", task.train_lengths), ("ood", (shortest, longest))):
        rows = task.sample(split, 4000, generator)
        assert set(rows.lengths.tolist()) == set(range(low + task.prefix, high + task.prefix + 1))
        assert rows.lengths.max() <= task.max_position
        assert (task.vocab.decode([int(rows.token_ids[0, 0])]) == [BOS]) == task.bos


@pytest.mark.parametrize("task", [task for task in VARIANTS if not task.name.startswith("first_tok")], ids=str)
def test_ood_is_scored_beyond_the_longest_training_row_only(task: Task, generator: torch.Generator) -> None:
    rows = task.sample("ood", 2000, generator)
    scored = task.scored("ood", task.label(rows.token_ids))
    longest = task.train_length + task.prefix
    assert not scored[:, :longest].any()
    assert scored[rows.lengths > longest, longest].all()


def test_with_a_start_token_ood_is_scored_from_count_52_on(generator: torch.Generator) -> None:
    """As in the paper's code, whose longest seen row counts the start token."""
    task = make_task("helper")
    labels = task.label(task.sample("ood", 100, generator).token_ids)
    assert labels[task.scored("ood", labels)].min() == 52


# ---- the paper's own rows: sampler against file, for every task ----


def paper_rows(file: str) -> list[list[str]]:
    lines = [json.loads(line) for line in (PAPER_DATA / f"{file}.jsonl").read_text().splitlines()]
    return [tokens for tokens, _ in lines]


LISTED = {  # file: split, and whether the sample in tests/ has every line that the paper's file has
    "vanilla.val": ("ind", True),
    "vanilla.ood": ("ood", False),
    "succession.test": ("aux", True),
    "helper_main.val": ("ind", True),
    "helper_aux.test": ("aux", True),
    "helper_shifted_main.val": ("ind", True),
    "helper_shifted_aux.test": ("aux", False),
    "shifted_start.val": ("ind", True),
    "mod10.val": ("ind", True),
    "mod10.ood": ("ood", False),
    "mod10_bos.val": ("ind", True),
}


@pytest.mark.parametrize("file", LISTED)
def test_listed_rows_are_the_rows_of_the_papers_file(file: str) -> None:
    split, complete = LISTED[file]
    name, bos = FILES[file]
    task = make_task(name, bos=bos)
    rows, probabilities = task.list_rows(split)
    ours = {
        tuple(task.vocab.decode(row[:length].tolist()))
        for row, length in zip(rows.token_ids, rows.lengths.tolist(), strict=True)
    }
    theirs = {tuple(task.vocab.decode(task.vocab.encode(row))) for row in paper_rows(file)}
    assert ours >= theirs
    assert not complete or ours == theirs
    assert len(ours) == len(probabilities)
    torch.testing.assert_close(probabilities, torch.full_like(probabilities, 1 / len(ours)))


def test_ood_rows_of_shifted_start_are_every_pair_of_start_and_length_once() -> None:
    rows, _ = make_task("shifted_start").list_rows("ood")
    pairs = list(zip(rows.token_ids[:, 0].tolist(), (rows.lengths - 1).tolist(), strict=True))
    assert sorted(pairs) == [(k, n) for k in range(1, 50) for n in range(51, 100) if k + n <= 100]


def test_rows_of_the_length_ratio_table_start_from_zero_and_end_at_the_last_number() -> None:
    task = make_task("shifted_start", train_length=25, ood_length=200)
    training, _ = task.list_rows("train")
    assert training.token_ids[:, 0].tolist() == list(range(176))
    ood, _ = task.list_rows("ood")
    assert (ood.token_ids[:, 0] + ood.lengths - 1 == 200).all()
    assert ood.token_ids[:, 0].tolist() == list(range(175))


@pytest.mark.parametrize(("split", "lengths"), [("train", [50]), ("ind", [50]), ("ood", list(range(51, 100)))])
def test_main_rows_of_helper_start_at_1_and_have_every_length_once(split: Split, lengths: list[int]) -> None:
    task = make_task("helper")
    rows, probabilities = task.list_rows(split)
    main = (rows.token_ids != task.vocab.id("<b>")).all(1)
    assert (rows.token_ids[main, 0] == 1).all()
    assert (rows.lengths[main] - 1).tolist() == lengths
    assert probabilities[main].unique().numel() == 1


def test_ood_rows_of_helper_and_shifted_start_always_end_at_the_last_number() -> None:
    rows, _ = make_task("helper_shifted").list_rows("ood")
    assert rows.token_ids[:, 0].tolist() == list(range(1, 51))
    assert (rows.token_ids[:, 0] + rows.lengths - 1 == 100).all()


def kind_counts(rows: list[list[str]], n_kinds: int) -> torch.Tensor:
    return torch.tensor([[row.count(str(kind)) for kind in range(n_kinds)] for row in rows])


def drawn_counts(task: Task, split: str, n_kinds: int, generator: torch.Generator) -> torch.Tensor:
    rows = task.sample(split, 20_000, generator).token_ids
    return torch.stack([(rows == kind).sum(1) for kind in range(n_kinds)], 1)


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Kolmogorov-Smirnov distance times the root of the smaller sample: above 2 about once in 1,500 samples."""
    n = len(theirs)
    values = torch.cat([ours, theirs]).unique().double()
    shares = [(sample.double()[:, None] <= values).double().mean(0) for sample in (ours, theirs)]
    return float((shares[0] - shares[1]).abs().max()) * math.sqrt(n)


@pytest.mark.parametrize(
    ("file", "n_kinds"), [("selective.val", 10), ("selective_bos.val", 10), ("selective_mod4.val", 4)]
)
def test_drawn_rows_have_the_law_of_the_papers_file(file: str, n_kinds: int, generator: torch.Generator) -> None:
    """Rarest and most frequent kind of a row, and its length; a sampler without the reweighting fails by far."""
    name, bos = FILES[file]
    task = make_task(name, bos=bos)
    ours, theirs = drawn_counts(task, "ind", n_kinds, generator), kind_counts(paper_rows(file), n_kinds)
    assert distance(ours.sum(1), theirs.sum(1)) < 2
    for extreme in (torch.amin, torch.amax):
        assert distance(extreme(ours, 1), extreme(theirs, 1)) < 2
    if bos:
        plain = sample_compositions(ours.sum(1), 10, 10, generator, 50)
        assert distance(plain.amin(1), theirs.amin(1)) > 4
        fixed_length = torch.full_like(ours.sum(1), 50)
        assert distance(fixed_length, theirs.sum(1)) > 4


def test_reweighted_rows_have_the_law_of_rejection(generator: torch.Generator) -> None:
    """Small case, against drawing and rejecting: smallest parts and all compositions."""
    keep = (0.05, 0.5, 1.0)
    totals = torch.full((200_000,), 9)
    plain = sample_compositions(totals, 3, 6, generator, 9)
    accepted = torch.rand(len(plain), generator=generator) < torch.tensor(keep)[plain.amin(1).clamp(max=2)]
    theirs = Tally(map(tuple, plain[accepted].tolist()))
    ours = Tally(map(tuple, sample_compositions(totals[: int(accepted.sum())], 3, 6, generator, 9, keep).tolist()))
    assert set(ours) == set(theirs)
    n = int(accepted.sum())
    chi_squared = sum((ours[parts] - theirs[parts]) ** 2 / (ours[parts] + theirs[parts]) for parts in ours)
    freedom = len(ours) - 1
    assert n > 30_000
    assert chi_squared < freedom + 4 * math.sqrt(2 * freedom)


def test_vocabularies_hold_what_the_task_can_say_and_no_more() -> None:
    sizes = {
        (task.name, task.bos): task.vocab.size for task in VARIANTS if task.largest is None and task.ood_length != 200
    }
    expected = {
        ("vanilla_succession", False): 102,  # 1..100, a, <pad>
        ("vanilla_succession", True): 103,
        ("helper", False): 103,
        ("helper_shifted", False): 103,
        ("shifted_start", False): 102,
        ("mod10", False): 13,  # 1..10, a, <pad>, <bos>
        ("mod10", True): 13,
        ("mod7", False): 10,
        ("selective", False): 11,
        ("selective", True): 12,
        ("selective_mod4", False): 5,
        ("selective_mod4", True): 6,
        ("selective_mod3", False): 5,  # three counts, but four kinds
        ("first_tok_homogeneous", False): 4,
        ("first_tok_heterogeneous", False): 13,
    }
    assert sizes | expected == sizes


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
        numbers = [token for token in task.vocab.tokens if token.isdigit()]
        assert task.vocab.encode(numbers) == [0 if task.vocab.aliases.get(token) else int(token) for token in numbers]


def test_settings_make_the_same_task_again() -> None:
    for task in VARIANTS:
        assert make_task(**json.loads(json.dumps(task_settings(task)))) == task


def test_counts_without_a_number_word_are_not_scored() -> None:
    labels = make_task("shifted_start").label(torch.tensor([[99, 101, 101, 101]]))
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
    assert task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 13}, task=settings)) == make_task("mod10")
    assert task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 13})) is None
    with pytest.raises(CountLensError, match="mod10 has 13 tokens, but its model has d_vocab=5"):
        task_of_checkpoint(CheckpointInfo("lstm", {"d_vocab": 5}, task=settings))


def test_tokens_outside_the_vocabulary_are_refused_with_the_near_ones() -> None:
    with pytest.raises(CountLensError, match=r"unknown token '<c>': did you mean <b>"):
        make_task("helper").label_tokens(["1", "<c>"])
    with pytest.raises(CountLensError, match=r"All: 1\.\.10, <bos>, <pad>, a"):
        make_task("mod10").label_tokens(["zzz"])


@pytest.mark.parametrize("split", ["train", "ood"])
def test_shares_of_counts_are_those_of_drawn_rows(split: Split, generator: torch.Generator) -> None:
    task = make_task("selective", bos=True)
    assert isinstance(task, Selective)
    rows = task.sample(split, 5000, generator).token_ids
    counts = torch.stack([(rows == kind).sum(1) for kind in range(task.n_kinds)])
    drawn = counts.flatten().bincount(minlength=11) / counts.numel()
    shares = task.count_shares(split, 20_000, generator)
    assert shares.sum() == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(shares, drawn, atol=0.01, rtol=0)
