"""What exact gradients gain: a counter trained on all rows at once, beside the same counter trained on drawn rows.

    python benchmarks/exact_gradient.py --seeds 3

mod10, learned positions, the `small` recipe, twice for each seed: as it is trained (each step computes long rows whose
tokens stand for all the shorter ones), and with as many drawn rows per step. Prints the step and the CPU seconds at
which the OOD accuracy first reached the goal, and the scores at the last step.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from training.config import OptimiserOptions, RunConfig, TrainConfig
from training.presets import resolve
from training.run.folder import RunFolder
from training.run.loop import Trainer

EVERY = 50  # steps between evaluations


def train(config: RunConfig, drawn: bool, goal: float) -> str:
    """Trains one run and returns a line of text about it."""
    reached = "never"
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(RunFolder.create(Path(folder) / "run", config))
        trainer.independent_rows = drawn
        seconds = 0.0
        while trainer.step < trainer.steps:
            started = time.process_time()
            trainer.advance()
            seconds += time.process_time() - started
            if trainer.step % EVERY == 0 or trainer.step == trainer.steps:
                scores = trainer.score()
                if reached == "never" and scores.ood >= goal:
                    reached = f"{trainer.step} steps, {seconds:.0f} s"
    name = "drawn rows" if drawn else "exact"
    last = f"{scores.ind:.1f} / {scores.ood:.1f}"
    return f"{config.seed:>5}  {name:10}  {reached:>18}  {last:>14}  {trainer.steps:>6}  {seconds:>5.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None, help="steps of the runs with drawn rows (the recipe's)")
    parser.add_argument("--goal", type=float, default=95.0, help="OOD accuracy in percent")
    options = parser.parse_args()
    torch.set_num_threads(1)
    reached = f"OOD reaches {options.goal:g}"
    print(f"{'seed':>5}  {'rows':10}  {reached:>18}  {'last IND / OOD':>14}  {'steps':>6}  {'CPU s':>5}")
    for seed in range(options.seeds):
        print(train(resolve(TrainConfig(seed=seed)), False, options.goal), flush=True)
        drawn = TrainConfig(seed=seed, optimiser=OptimiserOptions(steps=options.steps))
        print(train(resolve(drawn), True, options.goal), flush=True)


if __name__ == "__main__":
    main()
