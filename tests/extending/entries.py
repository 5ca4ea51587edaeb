"""What docs/extending.md adds to the registries."""

from definitions import DEFINITIONS

from app.explorer.page import Page
from app.explorer.registry import PAGES
from app.figures.reach import reach_figure
from app.figures.registry import FIGURES
from models.families import FAMILIES, Family
from models.schemes import SCHEMES, Scheme
from probes.reading.reach import Reach, reach
from probes.registry import PROBES, Probe
from training.recipes import RECURRENT, SMALL_ARCHITECTURES
from training.tasks import TASKS
from training.tasks.parity import Parity

TASKS["parity"] = Parity
DEFINITIONS["parity"] = lambda task, tokens: [str(tokens[: i + 1].count("1") % 2) for i in range(len(tokens))]

SCHEMES["alibi"] = Scheme("scores fall with the distance", "distances", "#882255", bias="alibi_bias")

FAMILIES["gru"] = Family("models.gru:GRUConfig", "models.gru:GRU", "gated recurrent unit", "#332288")
SMALL_ARCHITECTURES["gru"] = RECURRENT | {"lr": 1e-3, "embed_std": 0.02, "steps": 3000}

PROBES["reach"] = Probe(
    "Reach",
    "How many answers are right before the first mistake?",
    "The paper has no such analysis.",
    lambda subject, seed: reach(subject.counter, seed=seed),
)
FIGURES[Reach] = lambda result: {"Right answers before the first mistake": reach_figure(result)}
PAGES["reach"] = Page(
    "Reach",
    "straighten",
    "How many answers are right before the first mistake, row by row.",
    "It has no such analysis.",
    "reach",
)
