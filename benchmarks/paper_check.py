"""The counters of the README's results table: trains them all with the preset `small`, and writes the scores.

    python benchmarks/paper_check.py [--seeds 3] [--processes 2]

One thread a process. Stopped at any moment, it goes on where it was; finished runs are not trained again.
Scores go to checkpoints/scores.csv, the runs to runs/.
"""

import argparse
import csv
import multiprocessing
from dataclasses import replace
from pathlib import Path

from models import read_info
from training import RunFolder, TrainConfig, resolve, run_name, train
from training.config import ModelOptions, TaskOptions, architecture_name

SCORES = Path(__file__).parents[1] / "checkpoints" / "scores.csv"
COLUMNS = ["task", "architecture", "layers", "width", "seed", "ind", "ood", "best_step", "steps", "seconds"]
SCHEMES = ("nope", "sine", "ape", "rope", "spe")
RECURRENT = ("rnn", "lstm", "s4", "mamba", "rwkv6")
GRID = [(task, scheme) for task in ("first_tok_homogeneous", "mod10") for scheme in SCHEMES]
GRID += [("mod10", family) for family in RECURRENT] + [("selective", "lstm")]


def options(architecture: str) -> ModelOptions:
    """A transformer goes by its scheme, the others by their family."""
    return ModelOptions(family=architecture) if architecture in RECURRENT else ModelOptions(position=architecture)


def run_one(config: TrainConfig) -> dict[str, object]:
    """Trains one run, or reads it if it is finished, and returns its line of the table."""
    path = Path("runs") / run_name(config)
    run = RunFolder.open(path) if (path / "config.json").is_file() else RunFolder.create(path, resolve(config))
    if run.config() != resolve(config):
        raise SystemExit(f"{path} was trained with another recipe: move it away")
    train(run, progress=False)
    info, settings = read_info(run.best), run.config()
    values = (
        *(config.data.task, architecture_name(config.model), settings.model.n_layers, settings.model.d_model),
        config.seed,
        *(info.scores["ind"], info.scores["ood"], info.step, settings.optimiser.steps),
        round(run.metrics()[-1]["seconds"]),
    )
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    base = TrainConfig()
    configs = [
        replace(base, seed=seed, data=TaskOptions(task=task), model=options(architecture))
        for seed in range(arguments.seeds)
        for task, architecture in GRID
    ]
    configs.sort(key=lambda config: resolve(config).model.d_model or 0)  # the quick ones first
    rows = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(run_one, configs):
            print(row, flush=True)
            rows.append(row)
    SCORES.parent.mkdir(exist_ok=True)
    rows.sort(key=lambda row: [str(row[column]) for column in COLUMNS[:5]])
    with SCORES.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
