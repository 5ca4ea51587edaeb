"""The command line: `countlens COMMAND --help` teaches each. Heavy imports wait until a command runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from models.errors import CountLensError
from training.config import TrainConfig


def train(
    config: Annotated[TrainConfig, OmitArgPrefixes],
    out: Path | None = None,
    resume: Path | None = None,
    quiet: bool = False,
) -> None:
    """Train a counter, score it in and out of distribution, and save it.

    Options left out are the preset's for the task and scheme. A run that was stopped, even killed, goes
    on with --resume and ends as if it had never stopped.

    Examples:
      countlens train --task mod10 --position ape
      countlens train --task selective --bos --position nope --n-layers 1 --seed 2
      countlens train --resume runs/mod10/ape-2L/seed0

    Args:
        config: What to train.
        out: Folder of the run (runs/TASK/ARCHITECTURE/SEED).
        resume: A run folder to go on with; it brings its own options.
        quiet: No progress bar.
    """
    from app.commands.train import run_training

    run_training(config, out, resume, progress=not quiet)


def evaluate(
    checkpoint: Positional[str],
    data: Path | None = None,
    train_length: int | None = None,
    ood_length: int | None = None,
    rows: int = 1024,
    json: bool = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
) -> None:
    """Score a checkpoint on its own task, or on a data file.

    Examples:
      countlens eval mod10/ape-2L/seed0
      countlens eval runs/mod10/ape-2L/seed0 --data my_rows.jsonl --json
      countlens eval mod10/lstm-1L/seed0 --train-length 100 --ood-length 1000

    Args:
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        data: A JSONL file: one [[input tokens], [labels]] a line, "-1" where nothing is scored.
        train_length: Score in distribution on rows of this length (as trained).
        ood_length: Score beyond that, up to this length (as trained).
        rows: Rows to draw of each split, without --data.
        json: Print one JSON object.
        device: Where to run.
    """
    from app.commands.evaluate import run_evaluation

    run_evaluation(checkpoint, data, (train_length, ood_length), rows, json, device)


def list_counters(folders: Positional[tuple[Path, ...]] = (), json: bool = False) -> None:
    """List the counters that there are: the shipped ones and those in ./runs, with their scores.

    Args:
        folders: Look here instead.
        json: Print one JSON list.
    """
    from app.commands.listing import print_counters

    print_counters(folders, json)


def tasks(json: bool = False) -> None:
    """List the tasks, with an example of each.

    Args:
        json: Print one JSON list.
    """
    from app.commands.tasks import print_tasks

    print_tasks(json)


def export(
    checkpoint: Positional[str],
    out: Positional[Path],
    format: Literal["hooked-transformer", "bridge"] = "hooked-transformer",
) -> None:
    """Write a transformer counter as files for plain TransformerLens.

    Args:
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        out: Folder for model.safetensors and config.json; it must not hold any yet.
        format: hooked-transformer is for TransformerLens 2.x and 3.x, bridge for 4.x.
    """
    from app.commands.export import run_export

    run_export(checkpoint, out, format)


def tables(
    scores: tuple[Path, ...] = (),
    runs: Path | None = None,
    table: tuple[str, ...] = (),
    csv: str | None = None,
    json: bool = False,
) -> None:
    """Show the paper's tables with ours beside them, cell by cell: where both succeed, both fail, or differ.

    Success is at least 95 %, in and out of distribution each. A table of best seeds is set beside our best seed, a
    table of medians beside our median. The differences are listed with the reason, where one is known.

    For example:
      countlens tables
      countlens tables --table counting_results bos
      countlens tables --runs runs --csv mine.csv

    Args:
        scores: Score tables to read (the shipped checkpoints/scores.csv, unless --runs is given).
        runs: Read the finished runs below this folder; with --scores too, they win over a line of the same name.
        table: Only these tables, by the names that are printed beside their titles, as counting_results or bos.
        csv: Write one line for each side of each cell to this file instead; - prints them.
        json: Print one JSON object.
    """
    from app.commands.tables import print_tables

    print_tables(scores, runs, table, csv, json)


def ship(manifest: Positional[Path], out: Path = Path("checkpoints"), max_mb: float = 60.0) -> None:
    """Ship a sweep's counters: the best seed of each, the scores of all seeds, and a card that describes them.

    The best seed has the best mean of IND and OOD. A seed that was shipped before and is no longer the best is
    removed. Runs that are not finished are named and left out.

    For example:
      countlens ship runs/zoo.jsonl
      countlens ship sweeps/wide.jsonl --out my-zoo

    Args:
        manifest: The sweep's manifest, a JSONL file beside its runs.
        out: Folder of the zoo.
        max_mb: Refuse to make the zoo larger than this.
    """
    from app.commands.ship import run_ship

    run_ship(manifest, out, max_mb)


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "eval": evaluate,
    "list": list_counters,
    "tasks": tasks,
    "export": export,
    "tables": tables,
    "ship": ship,
}


def main(args: list[str] | None = None) -> None:
    """Runs a command. An error that the user can mend is one line on stderr and exit code 2."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="countlens",
            description="Train small language models to count, and see how they do it.",
            args=args,
        )
    except CountLensError as error:
        sys.exit(_fail(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_fail("stopped; a training run goes on with: countlens train --resume RUN", 130))
    except BrokenPipeError:
        sys.stderr.close()


def _fail(message: str, code: int) -> int:
    print(f"countlens: {message}", file=sys.stderr)
    return code
