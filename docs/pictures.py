"""Draws the README's pictures from trained runs: needs `pip install kaleido` and a Chrome or Chromium.

python benchmarks/paper_check.py     # trains the runs
python docs/pictures.py
"""

from pathlib import Path

from app.figures.positions import Curve, accuracy_figure
from models import load_counter
from training import evaluate
from training.tasks import make_task

HERE = Path(__file__).parent
SCHEMES = ("ape", "sine", "spe", "nope", "rope")


def best_seed(task: str, scheme: str) -> Path:
    """The run of a scheme with the best scores."""
    runs = [path.parent for path in Path("runs").glob(f"{task}/{scheme}-2L/seed*/model.safetensors")]
    return max(runs, key=lambda run: sum(load_counter(run).info.scores.values()))


def main() -> None:
    task = make_task("mod10")
    curves = []
    for scheme in SCHEMES:
        counter = load_counter(best_seed("mod10", scheme))
        curves.append(Curve(scheme, scheme, evaluate(counter, task, "shifted")))
    figure = accuracy_figure(curves, task.train_length, "Counting modulo 10: accuracy at each position")
    figure.write_image(HERE / "mod10.svg", width=860, height=380)


if __name__ == "__main__":
    main()
