"""A study of seconds: is a counter trained with a larger rate better? Its verdict rests on one claim."""

import numpy as np
import pandas as pd

from models.header import read_info
from probes.stats import Interval
from probes.studies.analysis import difference, over_seeds, series_by
from probes.studies.study import Panel, Protocol, Row, Study, StudyClaim
from training.config import RunConfig
from training.run.folder import RunFolder

TINY = {"task": "mod3", "lengths": [6, 12], "d_model": 8, "n_layers": 1, "n_heads": 1, "steps": 3, "eval_rows": 8}
CLAIM = StudyClaim("faster is better", "IND is higher with the larger rate.", "above", 0.0, "it is surely lower")
PROTOCOL = Protocol(
    "Is a larger rate better?",
    "None.",
    "It is.",
    "Two rates, two seeds.",
    {"lr": "the rate", "task": "its name", "ind": "percent right", "weird": "always missing"},
    "Means.",
    (CLAIM,),
    "Everything else.",
)


def factors(config: RunConfig) -> Row:
    return {"lr": config.optimiser.lr, "task": config.data.task}


def measure(run: RunFolder) -> Row:
    return {"ind": read_info(run.last).scores["ind"], "weird": np.nan}


def estimate(table: pd.DataFrame) -> dict[str, Interval | None]:
    return {CLAIM.name: over_seeds(table, difference("ind", {"lr": 0.1}, {"lr": 0.0}, by="task"))}


def draw(table: pd.DataFrame) -> tuple[Panel, ...]:
    return (Panel("IND over the rate", "rate", "IND %", (series_by("all", table, "lr", "ind"),)),)


def toy_study(seeds: int = 2, version: int = 1) -> Study:
    cell = TINY | {"lr": [0.0, 0.1], "warmup_steps": 0}
    return Study(
        9,
        "Rates",
        PROTOCOL,
        (cell | {"seed": list(range(seeds))},),
        (cell | {"seed": [0, 1], "steps": 2},),
        factors,
        measure,
        estimate,
        draw,
        version,
    )
