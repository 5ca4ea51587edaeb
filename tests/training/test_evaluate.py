"""Scores: against counters whose answers are known, and on data files."""

import json
import os
import re
from importlib import import_module
from pathlib import Path
from statistics import stdev

import pytest
import torch
from torch import Tensor, nn

from models.checkpoint import load_counter
from models.config import RNNConfig, TransformerConfig
from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.find import SHIPPED, named_counters
from training import datafile
from training.batches import Batch
from training.datafile import evaluate_file
from training.evaluate import evaluate, evaluating, predict
from training.tasks import Task, make_task, task_of_checkpoint

PAPER_DATA = Path(__file__).parents[1] / "paper_data"


class Oracle(Counter):
    """Answers by the task's own labeller, and wrongly from a given column on."""

    def __init__(self, task: Task, wrong_from: int = 1000) -> None:
        super().__init__()
        self.cfg = TransformerConfig(task.vocab.size)
        self.task, self.wrong_from = task, wrong_from
        self.anything = nn.Parameter(torch.zeros(1))
        self.rows = 0

    def _logits(self, token_ids: Tensor, position_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        self.rows += len(token_ids)
        answers = self.task.label(token_ids).clamp(min=0)
        answers[:, self.wrong_from :] = (answers[:, self.wrong_from :] + 1) % self.cfg.d_vocab
        return torch.nn.functional.one_hot(answers, self.cfg.d_vocab).float()


@pytest.mark.parametrize("name", ["mod10", "helper", "selective", "first_tok_homogeneous", "shifted_start"])
def test_a_counter_that_is_always_right_scores_100_everywhere(name: str) -> None:
    task = make_task(name)
    scores = evaluate(Oracle(task), task, "shifted", rows=64)
    assert set(scores.summary.values()) == {100.0}
    for split in task.splits:
        assert set(scores.by_position[split]) <= {100.0, None}


def test_ood_is_scored_beyond_the_training_positions_only() -> None:
    task = make_task("mod10")
    at_the_border = evaluate(Oracle(task, wrong_from=50), task, "shifted", rows=64)
    assert (at_the_border.ind, at_the_border.ood) == (100.0, 0.0)
    assert at_the_border.by_position["ood"][49:51] == [None, 0.0]
    one_more = evaluate(Oracle(task, wrong_from=51), task, "shifted", rows=64)
    assert one_more.ood > 0
    one_less = evaluate(Oracle(task, wrong_from=49), task, "shifted", rows=256)
    assert one_less.ind == pytest.approx(100 * (1 - 1 / 1275), abs=1e-3)  # one row of fifty is that long
    assert one_less.by_position["ind"][48:] == [100.0, 0.0]


def test_rows_that_can_be_listed_are_scored_exactly() -> None:
    """OOD accuracy of a counter that is right up to column 75, against the lengths 51..100 themselves."""
    task = make_task("mod10")
    counter = Oracle(task, wrong_from=75)
    scores = evaluate(counter, task, "shifted", rows=400)
    assert counter.rows == 127 + 77  # one row for each start, not one for each length
    right, scored = (sum(min(n, end) - 50 for n in range(51, 101)) for end in (75, 100))
    assert scores.ood == pytest.approx(100 * right / scored, abs=1e-3)


def test_the_best_constant_answer_scores_what_the_paper_reports() -> None:
    """150 of 1,275 labels are the same number: the 11.8 % of the paper's nope and rope."""

    class Constant(Oracle):
        def _logits(self, token_ids: Tensor, position_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
            return torch.nn.functional.one_hot(torch.ones_like(token_ids), self.cfg.d_vocab).float()

    task = make_task("mod10")
    assert evaluate(Constant(task), task, "shifted").ind == pytest.approx(100 * 150 / 1275, abs=1e-3)


def test_first_token_tasks_report_all_other_tokens_apart() -> None:
    task = make_task("first_tok_homogeneous")
    scores = evaluate(Oracle(task, wrong_from=1), task, "shifted", rows=8)
    assert scores.summary == {"ind": 100.0, "ind_other": 0.0, "ood": 100.0, "ood_other": 0.0}


def test_scoring_leaves_the_counter_in_its_mode() -> None:
    task = make_task("mod10")
    counter = Oracle(task).train()
    evaluate(counter, task, "shifted", rows=4)
    assert counter.training


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_data_files_in_the_papers_format_are_scored_at_their_labels(tmp_path: Path) -> None:
    task = make_task("mod10", bos=True)
    data = write(tmp_path / "rows.jsonl", [["0", "a", "a"], ["-1", "1", "2"]], [["<bos>", "a"], ["-1", "7"]])
    scores = evaluate_file(Oracle(task), task, "shifted", data)
    assert (scores.scored, scores.lines) == (3, 2)
    assert scores.accuracy == pytest.approx(200 / 3, abs=1e-3)
    assert (scores.extrapolation, scores.extrapolation_scored) == (None, 0)


def test_data_files_are_also_scored_at_extrapolation_positions_alone() -> None:
    task = make_task("mod10")
    scores = evaluate_file(Oracle(task, wrong_from=75), task, "shifted", PAPER_DATA / "mod10.ood.jsonl")
    lengths = range(52, 101, 4)
    assert scores.scored == sum(lengths)
    assert scores.extrapolation_scored == sum(n - 50 for n in lengths)
    assert scores.extrapolation == pytest.approx(
        100 * sum(min(n, 75) - 50 for n in lengths) / sum(n - 50 for n in lengths), abs=1e-3
    )
    assert scores.accuracy == pytest.approx(100 * sum(min(n, 75) for n in lengths) / sum(lengths), abs=1e-3)


def test_rows_may_be_as_long_as_the_counter_can_take_them(tmp_path: Path) -> None:
    task = make_task("mod10")
    data = write(tmp_path / "rows.jsonl", [["a"] * 300, [str(i % 10 + 1) for i in range(300)]])
    with pytest.raises(CountLensError, match="300 tokens are more than the counter's max_position=128"):
        evaluate_file(Oracle(task), task, "shifted", data)
    recurrent = build_counter(RNNConfig(task.vocab.size, d_model=4), torch.Generator().manual_seed(0))
    assert evaluate_file(recurrent, task, "shifted", data).extrapolation_scored == 250


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[["a"], ["1"]]\n[["a", "a"], ["1"]]', "line 2: 2 tokens and 1 labels"),
        ('[["a"], ["1"]]\nhello', r'line 2: expected \[\["a", "a"\], \["1", "2"\]\]'),
        ('{"tokens": 3}', "line 1: expected"),
        ('[["b"], ["1"]]', "line 1: unknown token 'b'"),
        ('[["a"], ["one"]]', "line 1: unknown label 'one'"),
        (json.dumps([["a"] * 129, ["1"] * 129]), "line 1: 129 tokens are more than the counter's max_position=128"),
        ('[["a"], ["-1"]]', "nothing to score"),
        ("", "is empty"),
        ('\n\n[["a"], [1]]', "line 3: expected"),
        ('[["a"], ["1"], ["2"]]', "line 1: expected"),
        ("[" * 100_000, "line 1: expected"),
        ("[[1], [2]]", "line 1: expected"),
        ("null", "line 1: expected"),
        ("\n" * 100_001, "100,001 lines, more than 100,000"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_data_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    task = make_task("mod10")
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(CountLensError, match=message):
        evaluate_file(Oracle(task), task, "shifted", tmp_path / "rows.jsonl")


def test_rows_that_would_take_too_much_memory_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task("mod10")
    data = write(tmp_path / "rows.jsonl", *[[["a"], ["1"]]] * 9, [["a"] * 8, ["1"] * 8])
    monkeypatch.setattr(datafile, "MAX_TOKENS", 80)
    assert evaluate_file(Oracle(task), task, "shifted", data).lines == 10
    monkeypatch.setattr(datafile, "MAX_TOKENS", 79)
    with pytest.raises(CountLensError, match="10 rows of up to 8 tokens, more than 79 in all: split it"):
        evaluate_file(Oracle(task), task, "shifted", data)


def test_pipes_and_devices_are_no_data_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    task = make_task("mod10")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CountLensError, match="not a regular file"):
            evaluate_file(Oracle(task), task, "shifted", path)


def test_a_missing_data_file_is_said_to_be_missing(tmp_path: Path) -> None:
    task = make_task("mod10")
    with pytest.raises(CountLensError, match="cannot read"):
        evaluate_file(Oracle(task), task, "shifted", tmp_path / "rows.jsonl")


def test_very_long_rows_are_predicted_a_few_at_a_time_with_the_same_answers(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    counter = build_counter(RNNConfig(12, n_layers=1, d_model=8), generator)
    sizes: list[int] = []
    counter.register_forward_pre_hook(lambda module, arguments: sizes.append(arguments[0].numel()))
    token_ids = torch.randint(12, (6, 50), generator=generator)
    inside = torch.arange(50) < torch.tensor([50, 20, 10, 5, 5, 5])[:, None]
    batch = Batch(token_ids, torch.zeros_like(token_ids), token_ids, inside, torch.ones(6))
    whole = predict(counter, batch)
    monkeypatch.setattr(import_module("training.evaluate"), "TOKENS_AT_ONCE", 100)
    assert torch.equal(predict(counter, batch)[inside], whole[inside])
    assert sizes == [300, 100, 20, 10]  # short rows without the padding up to the long one


def test_a_row_of_a_data_file_has_a_longest_length_also_for_counters_without_positions(tmp_path: Path) -> None:
    task = make_task("mod10")
    counter = build_counter(RNNConfig(task.vocab.size, n_layers=1, d_model=8), torch.Generator().manual_seed(0))
    (tmp_path / "long.jsonl").write_text(json.dumps([["a"] * 65_537, ["1"] * 65_537]))
    with pytest.raises(
        CountLensError, match="65,537 tokens are more than the most that a row may have, 65536: shorten"
    ):
        evaluate_file(counter, task, "shifted", tmp_path / "long.jsonl")


FILES = {  # rows of the paper by the task's folder among the shipped counters
    "vanilla_succession": "vanilla.val",
    "helper": "helper_main.val",
    "shifted_start": "shifted_start.val",
    "mod10": "mod10.val",
    "mod10-bos": "mod10_bos.val",
    "selective": "selective.val",
    "selective-bos": "selective_bos.val",
    "selective_mod4": "selective_mod4.val",
}
COUNTERS = [  # those of the length-ratio table have rows of other lengths
    (name, path)
    for name, path in named_counters((SHIPPED,))
    if name.partition("/")[0] in FILES and not re.search(r"\d+to\d+", name)
]


@pytest.mark.parametrize(("name", "path"), COUNTERS, ids=[name for name, _ in COUNTERS])
def test_a_shipped_counter_has_its_listed_score_on_the_papers_own_rows(name: str, path: Path) -> None:
    counter = load_counter(path)
    assert counter.info is not None
    task = task_of_checkpoint(counter.info)
    assert task is not None
    scores = evaluate_file(counter, task, "shifted", PAPER_DATA / f"{FILES[name.partition('/')[0]]}.jsonl")
    difference = abs(scores.accuracy - counter.info.scores["ind"])
    if difference > 1.0:  # points; a larger one must be within the spread of drawn samples of that size
        samples = [evaluate(counter, task, "shifted", scores.lines, seed).ind for seed in range(5)]
        assert difference <= 4 * stdev(samples)


def test_a_counter_is_left_in_the_mode_it_was_in() -> None:
    counter = build_counter(TransformerConfig(13), torch.Generator()).train()
    with evaluating(counter):
        assert not counter.training
        assert torch.is_inference_mode_enabled()
    assert counter.training
