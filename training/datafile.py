"""Scores on data files in the paper's format: `[[input tokens], [labels]]` on each line; "-1" is not scored."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from models.border import read_text
from models.counter import Counter
from models.errors import CountLensError
from training.batches import Batch
from training.evaluate import FINAL_SEED, percent, predict
from training.policies import get_policy
from training.tasks import NOT_SCORED, PAD, Task

MAX_BYTES = 64 * 2**20  # size of a data file
MAX_ROWS = 100_000
MAX_LENGTH = 2**16  # tokens per row, for counters without positions
MAX_TOKENS = 10_000_000  # in all rows together, padded to the longest
_row_decoder = msgspec.json.Decoder(tuple[list[str], list[str]])


@dataclass(frozen=True)
class FileScores:
    """Accuracy on a data file in the paper's format."""

    accuracy: float  # percent of all labels that are not "-1"
    scored: int  # labels
    lines: int
    extrapolation: float | None  # percent beyond the longest training position; None: the file has no such label
    extrapolation_scored: int


def evaluate_file(counter: Counter, task: Task, policy: str, path: Path, seed: int = FINAL_SEED) -> FileScores:
    """Scores a counter on a JSONL file of `[[input tokens], [labels]]`, overall and beyond the training length."""
    batch = _read_file(counter, task, policy, path, seed)
    is_scored = batch.label_ids != NOT_SCORED
    if not is_scored.any():
        raise CountLensError(f'{path} has nothing to score: every label is "-1"')
    is_right = predict(counter, batch) == batch.label_ids
    is_beyond = task.scored("ood", batch.label_ids)
    if task.scored_apart(batch.label_ids) is not None:  # first-token tasks score the first token only
        is_scored = task.scored("ind", batch.label_ids)
    return FileScores(
        accuracy=percent((is_right & is_scored).sum(), is_scored.sum()) or 0.0,
        scored=int(is_scored.sum()),
        lines=len(is_scored),
        extrapolation=percent((is_right & is_beyond).sum(), is_beyond.sum()),
        extrapolation_scored=int(is_beyond.sum()),
    )


def _read_file(counter: Counter, task: Task, policy: str, path: Path, seed: int) -> Batch:
    longest = counter.cfg.max_position if counter.has_positions else MAX_LENGTH
    token_rows, label_rows = [], []
    for number, line in _lines(path):
        try:
            tokens, answers = _row_decoder.decode(line)
            if len(tokens) != len(answers) or not tokens:
                raise CountLensError(f"{len(tokens)} tokens and {len(answers)} labels")
            if len(tokens) > longest:
                limit = "the counter's max_position=" if counter.has_positions else "the most that a row may have, "
                raise CountLensError(f"{len(tokens):,} tokens are more than {limit}{longest}: shorten the row")
            token_rows.append(torch.tensor(task.vocab.encode(tokens)))
            label_rows.append(torch.tensor(task.vocab.encode_labels(answers)))
        except (ValueError, RecursionError) as error:
            expected = 'expected [["a", "a"], ["1", "2"]]'
            reason = error if isinstance(error, CountLensError) else expected
            raise CountLensError(f"{path}, line {number}: {reason}") from error
    if not token_rows:
        raise CountLensError(f"{path} is empty: nothing to score")
    if len(token_rows) * max(map(len, token_rows)) > MAX_TOKENS:
        raise CountLensError(
            f"{path} has {len(token_rows):,} rows of up to {max(map(len, token_rows)):,} tokens, more than "
            f"{MAX_TOKENS:,} in all: split it"
        )
    pad = torch.nn.utils.rnn.pad_sequence
    token_ids = pad(token_rows, batch_first=True, padding_value=task.vocab.id(PAD))
    lengths = torch.tensor([len(row) for row in token_rows])
    max_position = max(counter.cfg.max_position, token_ids.shape[1])
    generator = torch.Generator().manual_seed(seed)
    position_ids = get_policy(policy).draw(lengths, token_ids.shape[1], max_position, generator)
    inside = torch.arange(token_ids.shape[1]) < lengths[:, None]
    labels = pad(label_rows, batch_first=True, padding_value=NOT_SCORED)
    return Batch(token_ids, position_ids, labels, inside, torch.ones(len(lengths))).to(counter.device)


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    lines = read_text(path, MAX_BYTES).splitlines()
    if len(lines) > MAX_ROWS:
        raise CountLensError(f"{path} has {len(lines):,} lines, more than {MAX_ROWS:,}: split it")
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
