"""`countlens eval`"""

import json
from dataclasses import asdict
from pathlib import Path

from models.checkpoint import load_counter
from models.errors import CountLensError
from training.datafile import evaluate_file
from training.evaluate import evaluate
from training.run.device import choose_device
from training.tasks import task_of_checkpoint


def run_evaluation(
    checkpoint: str,
    data: Path | None,
    lengths: tuple[int | None, int | None],
    rows: int,
    as_json: bool,
    device: str,
) -> None:
    """Prints the scores of a checkpoint."""
    counter = load_counter(checkpoint, choose_device(device))
    info = counter.info
    trained_on = None if info is None else task_of_checkpoint(info)
    if info is None or trained_on is None or info.policy is None:
        raise CountLensError(f"{checkpoint} does not say what it was trained on, so it cannot be scored")
    task = trained_on.with_lengths(*lengths)
    if data is not None:
        file_scores = evaluate_file(counter, task, info.policy, data)
        if as_json:
            print(json.dumps(asdict(file_scores)))
        else:
            print(f"{file_scores.accuracy:.1f} % of {file_scores.scored} scored tokens in {file_scores.lines} lines")
            if file_scores.extrapolation is not None:
                beyond = f"{file_scores.extrapolation_scored} of them, beyond the longest training position"
                print(f"{file_scores.extrapolation:.1f} % of {beyond}")
        return
    scores = evaluate(counter, task, info.policy, rows)
    if as_json:
        print(json.dumps(scores.summary))
        return
    print(f"{task.name}{' with bos' * task.bos}, up to {rows} rows per split")
    for split, value in scores.summary.items():
        print(f"  {split:9} {value:5.1f} %")
