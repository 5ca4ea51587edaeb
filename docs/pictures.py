"""Draws the README's pictures from shipped counters: needs `pip install kaleido` and a Chrome or Chromium.

python docs/pictures.py
"""

from pathlib import Path

from app.figures.positions import Curve, accuracy_figure
from models import load_counter
from models.find import SHIPPED, named_counters
from training import evaluate
from training.tasks import make_task

HERE = Path(__file__).parent
SCHEMES = ("ape", "sine", "spe", "nope", "rope")


def shipped(task: str, scheme: str) -> Path:
    """The shipped counter of a scheme."""
    return next(path for name, path in named_counters((SHIPPED,)) if name.startswith(f"{task}/{scheme}-2L/"))


def main() -> None:
    task = make_task("mod10")
    curves = []
    for scheme in SCHEMES:
        counter = load_counter(shipped("mod10", scheme))
        curves.append(Curve(scheme, scheme, evaluate(counter, task, "shifted")))
    figure = accuracy_figure(curves, task.train_length, "Counting modulo 10: accuracy at each position")
    figure.write_image(HERE / "mod10.svg", width=860, height=380)


if __name__ == "__main__":
    main()
