"""Study 1: does the mechanism, measured inside the training range, predict extrapolation?"""

import math

import numpy as np
import pandas as pd
import torch

from models.checkpoint import load_counter
from models.counter import Counter
from probes.mechanism.hypotheses import OWN, Hypothesis, Variable
from probes.mechanism.verdict import mechanisms
from probes.result import task_of_counter
from probes.stats import Interval
from probes.studies.analysis import (
    Numbers,
    Statistic,
    Weights,
    left_out_predictions,
    mean_of,
    over_seeds,
    rank_correlation,
)
from probes.studies.study import Panel, Protocol, Row, Series, Study, StudyClaim, seeds
from training.batches import draw_tokens
from training.config import RunConfig
from training.evaluate import FINAL_ROWS, evaluating
from training.run.folder import RunFolder
from training.run.loop import loss_of
from training.sweep.grid import Cell
from training.tasks import NOT_SCORED

SCHEMES = ("ape", "sine")
DECAYS = (0.1, 1.0)
N_SEEDS, N_QUICK_SEEDS = 16, 6

PROTOCOL = Protocol(
    question="Does the mechanism, measured inside the training range, predict how well a counter extrapolates?",
    background=(
        "Pilot on 18 ape counters: interchange accuracy on rows of the training length correlated 0.84 with OOD; IND "
        "accuracy, loss, margin and weight norm did not (at most 0.35). Its splits were chosen after seeing data. "
        '"Internal Causal Mechanisms Robustly Predict Language Model Out-of-Distribution Behaviors" (arXiv 2505.11770) '
        "claims in its title what is tested here; here it is asked of many seeds of one small counter with a stated "
        "algorithm, with the score and every analysis fixed before the runs."
    ),
    hypothesis=(
        "Counters that look alike in distribution differ in how far they follow (own PID - beginning) mod 10. How "
        "often swaps of its variables come out inside the trained range tells how often answers are right beyond it."
    ),
    grid=(
        "mod10 without bos, 2 layers, preset small but: ape with token embeddings of std 0.1 (with the preset's 0.01 "
        "nearly all seeds reach 100, and there is nothing to predict), sine 128 wide; weight decay 0.1 and 1.0; 16 "
        "seeds from 1000 on each, 64 runs, last checkpoint. Quick: six seeds."
    ),
    measured={
        "scheme": "ape or sine",
        "decay": "weight decay",
        "cell": "scheme and decay together",
        "score": "interchange accuracy: the lesser of the two below",
        "score_own": "share of swaps of the token's own PID that come out as predicted",
        "score_beginning": "share of swaps of the row's beginning that come out as predicted",
        "ind": "percent right in distribution, last checkpoint",
        "log_loss": "log10 of the expected loss in distribution",
        "margin": "mean over tokens of the right answer's logit minus the best wrong one's, in distribution",
        "weight_norm": "Euclidean norm of all parameters",
        "ood": "percent right beyond the training length, last checkpoint",
    },
    analysis=(
        "The score is that of the probe `mechanism`: 256 pairs of rows of 50 tokens. One variable of the paper's "
        "equation is set to its value in the other row, at the place that does best on 96 other pairs. Only pairs "
        "count whose predicted answer is neither row's own, and whose implied distance from the beginning occurred in "
        "training (0 to 49 tokens): so no swap asks for a count beyond it. Correlations are Spearman's, of "
        "ranks within each of the four cells (scheme and decay): differences between cells count for nothing. Each "
        "run's OOD is predicted by least squares on the runs of all other seeds, with an intercept for each cell, "
        "from log loss alone, and from log loss and score. 95 % intervals from drawing whole seeds again."
    ),
    claims=(
        StudyClaim(
            "the score goes with OOD",
            "Within cells, the rank correlation of score and OOD is above 0.3.",
            "above",
            0.3,
            "the interval of the correlation lies below 0.3",
        ),
        StudyClaim(
            "beyond the loss",
            "Within cells and given the loss in distribution, the partial rank correlation is above 0.2.",
            "above",
            0.2,
            "the interval of the partial correlation lies below 0.2",
        ),
        StudyClaim(
            "better predictions",
            "Predictions of OOD for seeds left out err by at least 1 point less with the score than without it.",
            "above",
            1,
            "the interval of the reduction of the mean absolute error lies below 1 point",
            unit="points",
        ),
        StudyClaim(
            "better than what is measured anyway",
            "Within cells, the score's correlation with OOD is above the largest absolute one of IND accuracy, log "
            "loss, margin and weight norm.",
            "above",
            0,
            "the interval of the difference lies below 0",
            is_primary=False,
        ),
        StudyClaim(
            "close predictions",
            "With the score, predictions for seeds left out err by less than 10 points on average.",
            "below",
            10,
            "the interval of the mean absolute error lies above 10 points",
            is_primary=False,
            unit="points",
        ),
    ),
    left_out=(
        "Sine at its preset's 256 columns (four times the cost), rope, nope and spe (no seed of theirs extrapolates "
        "without bos), and tasks other than mod10."
    ),
)


def _cells(number: int) -> tuple[Cell, ...]:
    common: Cell = {"task": "mod10", "weight_decay": list(DECAYS), "seed": seeds(number)}
    return (
        common | {"architecture": "ape", "embed_std": 0.1},
        common | {"architecture": "sine", "d_model": 128},
    )


CELLS, QUICK_CELLS = _cells(N_SEEDS), _cells(N_QUICK_SEEDS)

PAIRS, SEED = 256, 0
# The paper's equation; it leaves open which tokens tell where the row begins.
EQUATION = Hypothesis(
    "(own - beginning) mod m",
    "the PID at which the row begins is subtracted from the token's own, modulo m",
    (
        OWN,
        Variable(
            "beginning",
            "PID at which the row begins",
            lambda query: query.first,
            ("token", "first", "context"),
            whole=True,
        ),
    ),
    lambda values: values["own"] - values["beginning"],
)
OTHERS = ("ind", "log_loss", "margin", "weight_norm")  # what else may predict OOD


def factors(config: RunConfig) -> Row:
    """The scheme, the decay and the cell of a run."""
    scheme, decay = config.model.position, config.optimiser.weight_decay
    return {"scheme": scheme, "decay": decay, "cell": f"{scheme}, decay {decay:g}"}


def measure(run: RunFolder) -> Row:
    """The score first, then what is measured in distribution, and OOD last."""
    counter = load_counter(run.last)
    assert counter.info is not None
    (tested,) = mechanisms(counter, {"beginning": EQUATION}, PAIRS, SEED).hypotheses
    shares = {claim.variable: claim.accuracy.value for claim in tested.claims}
    own, beginning = shares["own"], shares["beginning"]
    norm = sum(float(parameter.detach().double().pow(2).sum()) for parameter in counter.parameters()) ** 0.5
    return {
        "score": min(own, beginning),
        "score_own": own,
        "score_beginning": beginning,
        "ind": counter.info.scores["ind"],
        **_in_distribution(counter),
        "weight_norm": norm,
        "ood": counter.info.scores["ood"],
    }


def _in_distribution(counter: Counter) -> Row:
    """The expected loss and the mean margin of the right answer, over all rows of the training lengths."""
    task, policy = task_of_counter(counter)
    tokens = draw_tokens(counter, task, policy, "ind", FINAL_ROWS, torch.Generator().manual_seed(SEED))
    labels = tokens.batch.label_ids
    with evaluating(counter):
        logits = counter(tokens.batch.token_ids, tokens.batch.position_ids)
        loss = float(loss_of(logits, tokens))
        scored = labels != NOT_SCORED
        right = labels.where(scored, 0)[..., None]
        leads = logits.gather(-1, right)[..., 0] - logits.scatter(-1, right, -torch.inf).amax(-1)
        shares = tokens.shares * scored
        margin = float((leads * shares).sum() / shares.sum())
    return {"log_loss": math.log10(max(loss, 1e-12)), "margin": margin}


def _correlation(column: str, given: tuple[str, ...] = ()) -> Statistic:
    return rank_correlation(column, "ood", given, within="cell")


def _lead(table: pd.DataFrame, weights: Weights) -> Numbers:
    others = np.ma.masked_invalid([np.abs(_correlation(column)(table, weights)) for column in OTHERS])
    return _correlation("score")(table, weights) - np.ma.filled(others.max(0), np.nan)


def with_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The table with each run's OOD as predicted from the runs of other seeds, and the errors of these predictions."""
    table = table.dropna(subset=["score", "log_loss", "ood"])
    if table["seed"].nunique() < 3:
        return table.iloc[:0]
    predicted = left_out_predictions(table, "ood", ("log_loss", "score"), "cell")
    without = left_out_predictions(table, "ood", ("log_loss",), "cell")
    return table.assign(
        predicted=predicted,
        error=np.abs(predicted - table["ood"]),
        error_without=np.abs(without - table["ood"]),
    ).assign(reduction=lambda runs: runs["error_without"] - runs["error"])


def estimate(table: pd.DataFrame) -> dict[str, Interval | None]:
    """The number of every claim."""
    errors = with_errors(table)
    has_errors = len(errors) > 0
    return {
        "the score goes with OOD": over_seeds(table, _correlation("score")),
        "beyond the loss": over_seeds(table, _correlation("score", ("log_loss",))),
        "better predictions": over_seeds(errors, mean_of("reduction")) if has_errors else None,
        "better than what is measured anyway": over_seeds(table, _lead),
        "close predictions": over_seeds(errors, mean_of("error")) if has_errors else None,
    }


def draw(table: pd.DataFrame) -> tuple[Panel, ...]:
    """Score and OOD of every run, the rank correlations with OOD, and the predictions."""
    columns = {"score": "interchange score", "ind": "IND", "log_loss": "log loss", "margin": "margin"} | {
        "weight_norm": "weight norm"
    }
    intervals = {label: over_seeds(table, _correlation(column)) for column, label in columns.items()}
    correlations = {label: interval for label, interval in intervals.items() if interval is not None}
    bars = Series("within cells", tuple(correlations), tuple(correlations.values()), "points")
    panels = [
        Panel(
            "The mechanism inside the trained range, and counting beyond it",
            "interchange accuracy",
            "OOD %",
            _points(table, "score", "ood"),
        ),
        Panel("What goes with OOD", "measured in distribution", "rank correlation", (bars,), categories=True),
    ]
    errors = with_errors(table)
    if len(errors):
        caption = "Predicted from the runs of other seeds, and measured"
        panels.append(Panel(caption, "predicted OOD %", "measured OOD %", _points(errors, "predicted", "ood")))
    return tuple(panels)


def _points(table: pd.DataFrame, x: str, y: str) -> tuple[Series, ...]:
    return tuple(
        Series(
            str(cell),
            tuple(runs[x]),
            tuple(Interval(value, value, value) for value in runs[y]),
            "points",
            tuple(runs["run"]),
        )
        for cell, runs in table.dropna(subset=[x, y]).groupby("cell")
    )


STUDY = Study(
    1,
    "The mechanism, measured inside the training range, predicts extrapolation",
    PROTOCOL,
    CELLS,
    QUICK_CELLS,
    factors,
    measure,
    estimate,
    draw,
)
