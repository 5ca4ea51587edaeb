"""Study 3: which token tells ape where the row begins? Not the first alone: the first several vote."""

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from models.checkpoint import load_counter
from models.find import find_snapshots
from models.transformer import Transformer
from probes.mechanism.anchors import anchor_probe
from probes.over_training.dynamics import LEAST_SNAPSHOTS, accuracy, constant_accuracy
from probes.over_training.rises import change_point
from probes.result import task_of_counter
from probes.stats import Interval
from probes.studies.analysis import (
    Numbers,
    Statistic,
    Weights,
    mean_gap,
    mean_of,
    over_seeds,
    select,
    series_by,
    weighted_mean,
)
from probes.studies.fourier import share_at_periods
from probes.studies.study import Panel, Protocol, Row, Series, Study, StudyClaim, seeds
from probes.studies.vote import draw_steps, fit_vote, followed_beginning, kept_answers, run_moved
from training.config import RunConfig
from training.run.folder import RunFolder
from training.sweep.grid import Cell

VOTERS = 12  # tokens whose PIDs are moved, from the first on
N_SEEDS, N_QUICK_SEEDS = 10, 4
SNAPSHOTS = 24

PROTOCOL = Protocol(
    question="Which token tells a modular counter where its row begins?",
    background=(
        "The paper says that modular counters recognise the first token and subtract its position from their own. On "
        "five ape counters (seeds 5 to 9) moving the first token's position id (PID) alone changed most answers but "
        "moved nearly none by as many places, while moving the first five together moved over half of them; no rule "
        "with fixed weights predicted more than 52 % of the answers. That moving a whole row changes nothing cannot "
        "tell: there, all tokens move together. A pilot on the shipped ape, sine and spe counters, after which this "
        "protocol was revised: a vote as below explained 34, 28 and 25 % of where answers count from, the first token "
        "alone 0, 17 and less than 0 %; moving single PIDs by 10 kept 100, 54 and 51 % of the answers, by 5 28, 61 and "
        "62 %; keys and values of the first 12 tokens of layer 1, from rows that begin elsewhere, left 56 % (ape) and "
        "99 % (sine) of the answers as they were; on the ape counter, following a moved beginning had half risen at "
        "step 121, OOD at step 241."
    ),
    hypothesis=(
        "The first several tokens vote. Each points, with a weight of its place, at the beginning that its own PID "
        "implies on a circle of 10; the answer is counted from where the sum points. The vote is taken in layer 0."
    ),
    grid=(
        "mod10 without bos, 2 layers, preset small: ape (with 24 snapshots over training), sine and spe. Seeds 1000 "
        "to 1009, last checkpoint. Quick: ape alone, four seeds."
    ),
    measured={
        "scheme": "ape, sine or spe",
        "ind": "percent right in distribution, last checkpoint",
        "ood": "percent right beyond the training length, last checkpoint",
        "vote_explains": "share of the variance of where a row's answers count from that the vote explains, on rows "
        "that it was not fitted to; below 0 where the mean would do better",
        "vote_explains_long": "the same at tokens 51 to 100 of rows of 100 tokens",
        "first_explains": "the same for a vote with the first token as its only voter",
        "vote_right": "share of answers that count from the residue that the vote points at",
        "first_right": "share of answers that count from what the first token implies",
        "keeps_moved": "share of answers that count from the true beginning all the same",
        "keeps_layer1": "the same if PIDs stay, but keys and values of the first 12 tokens in layer 1 are those of "
        "rows that begin as many places elsewhere",
        "voters": "effective number of voters: (sum of weights)^2 / sum of their squares",
        **{f"weight_{place}": f"share of the weights of token {place}" for place in range(1, VOTERS + 1)},
        "keeps_10": "share of answers that stay when one of the first eight PIDs is moved by 10",
        "keeps_5": "share of answers that stay when it is moved by 5",
        "anchor_first": "what the anchor `first token` predicts in the probe `anchor`",
        "anchor_best": "what the best anchor predicts there",
        "qk_layer0": "share of the variance of layer 0's attention scores over the key's PID at periods that divide 10",
        "qk_layer1": "the same in layer 1, at the mean residual stream of each PID",
        "vote_rise": "training step at which following a moved beginning rises (ape)",
        "ood_rise": "training step at which OOD rises (ape)",
    },
    analysis=(
        "Rows of 50 tokens; each of the first 12 PIDs is moved, with probability one half, by a step of its own from "
        "-4 to 5 places. Watched are tokens 17 to 50 that are answered right with nothing moved. Each answer is a unit "
        "vector that points at the beginning it counts from, on a circle of 10; a row is their mean. The vote is the "
        "sum of the tokens' unit vectors with weights that are not negative, fitted by least squares to 256 rows and "
        "scored on 256 others. Periods that divide 10: of 120 PIDs, the discrete Fourier components at 10, 5, 10/3, "
        "2.5 and 2; five components taken at random hold 8 % of white noise. Rises: the step between the lower and the "
        "upper part of a curve over snapshots, by ranks alone (Pettitt's change point), so that the scale of the "
        "curve does not matter. Means over seeds; 95 % intervals from drawing seeds again."
    ),
    claims=(
        StudyClaim(
            "more than the first token",
            "On ape, the vote explains more of where answers count from than the first token alone, by more than 0.15.",
            "above",
            0.15,
            "the interval of the difference lies below 0.15",
        ),
        StudyClaim(
            "several voters",
            "On ape, the effective number of voters is above 2.",
            "above",
            2,
            "the interval of the number lies below 2",
        ),
        StudyClaim(
            "blind to ten",
            "On ape, moving single PIDs by 10 keeps more answers than moving them by 5, by more than 20 points: PIDs "
            "are read modulo 10.",
            "above",
            0.2,
            "the interval of the difference lies below 0.2",
        ),
        StudyClaim(
            "a vote and nothing else",
            "On ape, the vote explains more than half. (The pilot speaks against it: then tokens do more than vote.)",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
            is_primary=False,
        ),
        StudyClaim(
            "taken in layer 0",
            "On ape, other keys and values of the first 12 tokens in layer 1 leave more answers as they were than "
            "moved PIDs do, by more than 20 points.",
            "above",
            0.2,
            "the interval of the difference lies below 0.2",
            is_primary=False,
        ),
        StudyClaim(
            "beyond training",
            "On ape, the vote that was fitted to rows of 50 tokens explains more than 0.15 at tokens 51 to 100.",
            "above",
            0.15,
            "the interval of the share lies below 0.15",
            is_primary=False,
        ),
        StudyClaim(
            "in the weights",
            "On ape, more than half of the variance of layer 1's attention scores over the key's PID is at periods "
            "that divide 10.",
            "above",
            0.5,
            "the interval of the share lies below 0.5",
            is_primary=False,
        ),
        StudyClaim(
            "the vote forms first",
            "On ape, following a moved beginning rises before OOD does: log2 of the ratio of their steps is below 0.",
            "below",
            0,
            "the interval of the logarithm lies above 0",
            is_primary=False,
        ),
        StudyClaim(
            "sine as well",
            "On sine, the vote explains more than the first token alone, by more than 0.15.",
            "above",
            0.15,
            "the interval of the difference lies below 0.15",
            is_primary=False,
        ),
        StudyClaim(
            "not spe",
            "On spe, which does not extrapolate, moving PIDs by 10 is hardly better than by 5: less than 20 points.",
            "below",
            0.2,
            "the interval of the difference lies above 0.2",
            is_primary=False,
        ),
    ),
    left_out=("Snapshots of sine and spe (disk space), rows with bos, and moves of tokens after the twelfth."),
)

CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_SEEDS)},
    {"task": "mod10", "architecture": ["sine", "spe"], "seed": seeds(N_SEEDS)},
)
QUICK_CELLS: tuple[Cell, ...] = (
    {"task": "mod10", "architecture": "ape", "snapshots": SNAPSHOTS, "seed": seeds(N_QUICK_SEEDS)},
)

ROWS = 256  # that a vote is fitted to; as many others score it
SINGLE_TOKENS, ROWS_PER_TOKEN = 8, 32  # moved one by one
TOGETHER, ROWS_TOGETHER = 5, 64  # moved together, over training
SEED = 0


def factors(config: RunConfig) -> Row:
    """The positional scheme."""
    return {"scheme": config.model.position}


def measure(run: RunFolder) -> Row:
    """The vote, single moves, the anchor probe and the periods of the last checkpoint; the rises over training."""
    counter = load_counter(run.last)
    assert isinstance(counter, Transformer)
    assert counter.info is not None
    numbers: Row = {"ind": counter.info.scores["ind"], "ood": counter.info.scores["ood"]}
    numbers |= _measure_vote(counter)
    numbers["keeps_10"], numbers["keeps_5"] = (
        kept_answers(counter, move, SINGLE_TOKENS, ROWS_PER_TOKEN, SEED) for move in (10, 5)
    )
    anchors = {score.name: score.accuracy.value for score in anchor_probe(counter, seed=SEED).anchors}
    numbers |= {"anchor_first": anchors["first token"], "anchor_best": max(anchors.values())}
    task, _ = task_of_counter(counter)
    assert task.period is not None
    for layer in range(2):
        numbers[f"qk_layer{layer}"] = share_at_periods(counter, layer, task.period)
    return numbers | _measure_rises(run)


def _measure_vote(counter: Transformer) -> Row:
    generator = np.random.default_rng(SEED)
    moved = run_moved(counter, draw_steps(2 * ROWS, VOTERS, generator), seed=SEED)
    fit_rows, test_rows = moved.part(slice(ROWS)), moved.part(slice(ROWS, None))
    vote, first = fit_vote(fit_rows, range(VOTERS)), fit_vote(fit_rows, [0])
    task, _ = task_of_counter(counter)
    steps = draw_steps(ROWS, VOTERS, generator)
    long = run_moved(counter, steps, task.ood_length, SEED).from_token(task.train_length)
    elsewhere = run_moved(counter, steps, seed=SEED, layer=1)
    weights = vote.weights / vote.weights.sum()
    return {
        "vote_explains": vote.explains(test_rows),
        "vote_explains_long": vote.explains(long),
        "first_explains": first.explains(test_rows),
        "vote_right": test_rows.share(vote.predict(test_rows.steps)),
        "first_right": test_rows.share(test_rows.steps[:, 0]),
        "keeps_moved": test_rows.share(0 * test_rows.steps[:, 0]),
        "keeps_layer1": elsewhere.share(0 * steps[:, 0]),
        "voters": vote.effective_voters,
        **{f"weight_{place}": float(weight) for place, weight in enumerate(weights, 1)},
    }


def _measure_rises(run: RunFolder) -> Row:
    """The step at which each curve over training rises; None without snapshots, or without a rise."""
    snapshots = find_snapshots(run.path).by_step
    if len(snapshots) < LEAST_SNAPSHOTS:
        return {"vote_rise": None, "ood_rise": None}
    counters = [load_counter(path) for path in snapshots.values()]
    steps = np.array(list(snapshots))
    ood = np.array([accuracy("ood")(counter, SEED) for counter in counters])
    vote = np.array([followed_beginning(counter, TOGETHER, ROWS_TOGETHER, SEED) for counter in counters])
    task, _ = task_of_counter(counters[-1])
    assert task.period is not None
    floors = {"vote_rise": 100 / task.period, "ood_rise": constant_accuracy("ood")(counters[-1], SEED)}
    curves = {"vote_rise": vote, "ood_rise": ood}
    return {name: _step_of_rise(steps, np.maximum(curves[name], floor)) for name, floor in floors.items()}


def _step_of_rise(steps: Int[np.ndarray, "snapshot"], scores: Float[np.ndarray, "snapshot"]) -> float | None:
    """The geometric middle of the last step before the change point and the first one after it; None without a rise."""
    if scores.max() == scores[0]:
        return None
    after = change_point(scores)
    return float(np.sqrt((1 + steps[after - 1]) * (1 + steps[after])) - 1)


def _log_ratio(table: pd.DataFrame, weights: Weights) -> Numbers:
    return weighted_mean(np.log2((table["vote_rise"] / table["ood_rise"]).to_numpy(float)), weights)


def estimate(table: pd.DataFrame) -> dict[str, Interval | None]:
    """The number of every claim."""
    ape, sine, spe = (select(table, scheme=scheme) for scheme in ("ape", "sine", "spe"))
    statistics: dict[str, tuple[pd.DataFrame, Statistic]] = {
        "more than the first token": (ape, mean_gap("vote_explains", "first_explains")),
        "several voters": (ape, mean_of("voters")),
        "blind to ten": (ape, mean_gap("keeps_10", "keeps_5")),
        "a vote and nothing else": (ape, mean_of("vote_explains")),
        "taken in layer 0": (ape, mean_gap("keeps_layer1", "keeps_moved")),
        "beyond training": (ape, mean_of("vote_explains_long")),
        "in the weights": (ape, mean_of("qk_layer1")),
        "the vote forms first": (ape, _log_ratio),
        "sine as well": (sine, mean_gap("vote_explains", "first_explains")),
        "not spe": (spe, mean_gap("keeps_10", "keeps_5")),
    }
    return {name: over_seeds(runs, statistic) for name, (runs, statistic) in statistics.items()}


def draw(table: pd.DataFrame) -> tuple[Panel, ...]:
    """The weights of the voters, what a vote explains, what single moves do, and when the vote forms."""
    schemes = list(dict.fromkeys(table["scheme"]))
    places = [f"weight_{place}" for place in range(1, VOTERS + 1)]
    weights = []
    for scheme in schemes:
        runs = select(table, scheme=scheme)
        shares = [over_seeds(runs, mean_of(place)) for place in places]
        points = [(float(place), share) for place, share in enumerate(shares, 1) if share is not None]
        weights.append(Series(scheme, tuple(x for x, _ in points), tuple(y for _, y in points)))
    explained = {"vote of the first 12": "vote_explains", "first token alone": "first_explains"}
    kept_by = {"one PID moved by 10": "keeps_10", "one PID moved by 5": "keeps_5"}
    panels = [
        Panel("How much each token's vote counts", "token of the row", "share of the weights", tuple(weights)),
        Panel(
            "What explains from where answers count",
            "scheme",
            "share of the variance",
            tuple(series_by(label, table, "scheme", column, "points") for label, column in explained.items()),
            categories=True,
        ),
        Panel(
            "Position ids are read modulo 10",
            "scheme",
            "share of answers that stay",
            tuple(series_by(label, table, "scheme", column, "points") for label, column in kept_by.items()),
            categories=True,
        ),
    ]
    runs = table.dropna(subset=["vote_rise", "ood_rise"])
    if len(runs):
        rises = tuple(Interval(step, step, step) for step in runs["vote_rise"])
        dots = Series("a run each", tuple(runs["ood_rise"]), rises, "points", tuple(runs["run"]))
        panels.append(Panel("When the vote forms", "step at which OOD rises", "step at which following rises", (dots,)))
    return tuple(panels)


STUDY = Study(
    3, "The first tokens vote on where the row begins", PROTOCOL, CELLS, QUICK_CELLS, factors, measure, estimate, draw
)
