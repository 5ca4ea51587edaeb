"""Study 2: why does rope not count modulo 10? Its periods do not fit the base.

Trained with two waves that do, it does; and turning those waves of bos' key turns the answer, like the hand of a clock.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from models.checkpoint import load_counter
from models.families import build_counter
from models.transformer import Transformer
from probes.result import task_of_counter
from probes.stats import Interval
from probes.studies.analysis import (
    Numbers,
    Statistic,
    Weights,
    difference,
    gaps,
    has,
    mean_gap,
    over_seeds,
    rank_correlation,
    select,
    series_by,
    weighted_mean,
)
from probes.studies.study import Panel, Protocol, Row, Series, Study, StudyClaim, seeds
from probes.studies.turned_waves import turn_waves
from training.config import RunConfig
from training.evaluate import evaluate
from training.run.folder import RunFolder
from training.sweep.grid import Cell
from training.tasks import split_base

BASES = tuple(range(4, 13))
DOSE_BASES = (7, 10)  # 10 is the paper's; 7 is prime, and far from the usual waves' periods
FACTORS = (1.0, 1.0025, 1.005, 1.01, 1.02, 1.037, 1.08)
EXACT, DETUNED = 1.0, 1.037
N_SEEDS, N_QUICK_SEEDS = 10, 4
SINE = {"d_model": 128, "n_heads": 1}  # a quarter of the preset's cost

PROTOCOL = Protocol(
    question="Why does rope, whose rotation is periodic, not count modulo 10?",
    background=(
        "The paper finds that rope does not extrapolate in modular counting, and wonders at it. Rope's usual periods "
        "(6.3, 19.9, 62.8, ... positions at 16 columns a head) are no multiples of 10; the second misses 20 by 0.7 %. "
        "Pilots with bos on other seeds: two waves replaced by periods of 10 and 20 reached a last OOD of 84 and 99, "
        "with 10.37 and 20.74 it was 39 and 30, with the usual ones 22 at best. Fourier Position Embedding (arXiv "
        "2412.17739) repairs rope's frequencies for longer contexts, and arXiv 2601.22690 is about how periodicity "
        "generalises; here one known period is set, detuned in steps, and turned inside trained counters."
    ),
    hypothesis=(
        "The counter reads the distance to bos off its waves as off a clock. It counts on beyond training if a wave "
        "comes round exactly with the base, and the worse the more the wave is detuned."
    ),
    grid=(
        "mod b with bos, b = 4..12, rope, 2 layers, preset small: the first two waves with periods b and 2b (exact), "
        "the same times 1.037 (detuned), or the usual ones. For b = 7 and 10 also times 1.0025, 1.005, 1.01, 1.02 and "
        "1.08. Sister experiment: mod10 without bos, sine, 128 wide, first two waves exact, detuned or usual. "
        "Seeds 1000 to 1009, last checkpoint. Quick: b = 7 and 10, exact, times 1.01, detuned and usual, and sine "
        "exact and detuned, four seeds."
    ),
    measured={
        "scheme": "rope or sine",
        "base": "b, of mod b",
        "arm": "exact, detuned (by any factor) or usual",
        "factor": "what the exact periods are multiplied by; none with the usual periods",
        "ind": "percent right in distribution, last checkpoint",
        "ood": "percent right beyond the training length, last checkpoint",
        "clock_follows": "share of answers that move by m when the first two waves of bos' key are turned by m places",
        "others_follow": "the same when all other waves of bos' key are turned instead, and the first two are not",
        "all_follow": "the same when all waves of bos' key are turned: as if bos stood m places further on",
        "exchanged_ood": "OOD after the first two waves of the trained counter are given the exact periods",
    },
    analysis=(
        "Means over seeds, then over bases; 95 % intervals from drawing whole seeds again. Turned waves: rows of the "
        "training length, every m from 1 to b - 1, tokens that are answered right with nothing turned and whose "
        "implied count lies in the trained range. Dose-response: Spearman's rank correlation of factor and OOD over "
        "the runs of bases 7 and 10, and the mean distance of the curve from that of an ideal clock: one whose hand "
        "has the detuned period 2b, and whose answer is that of the nearest hand position seen in training."
    ),
    claims=(
        StudyClaim(
            "exact beats detuned",
            "Exact periods raise OOD by more than 15 points over periods that are 3.7 % longer (mean over bases).",
            "above",
            15,
            "the interval of the difference lies below 15 points",
            unit="points",
        ),
        StudyClaim(
            "exact beats usual",
            "Exact periods raise OOD by more than 15 points over the usual ones (mean over bases).",
            "above",
            15,
            "the interval of the difference lies below 15 points",
            unit="points",
        ),
        StudyClaim(
            "dose and response",
            "The more the periods are detuned, the lower is OOD: rank correlation below -0.5.",
            "below",
            -0.5,
            "the interval of the correlation lies above -0.5",
        ),
        StudyClaim(
            "the clock turns the answer",
            "In exact counters, turning the two waves of bos' key by m places moves answers by m more often, by over "
            "a quarter of all answers, than turning all its other waves.",
            "above",
            0.25,
            "the interval of the difference of both shares lies below 0.25",
        ),
        StudyClaim(
            "an ideal clock",
            "The dose-response curve is that of an ideal clock, within 15 points on average.",
            "below",
            15,
            "the interval of the mean distance lies above 15 points",
            is_primary=False,
            unit="points",
        ),
        StudyClaim(
            "every base",
            "No base is an exception: the least difference of exact over detuned is above 0.",
            "above",
            0,
            "the interval of the least difference lies below 0",
            is_primary=False,
            unit="points",
        ),
        StudyClaim(
            "too late after training",
            "Exact periods given to detuned counters after training raise OOD by less than 10 points.",
            "below",
            10,
            "the interval of the gain lies above 10 points",
            is_primary=False,
            unit="points",
        ),
        StudyClaim(
            "sine as well",
            "Sine gains more than 10 points of OOD from exact periods over detuned ones. An earlier try with one such "
            "wave, 64 wide, showed no gain; if there is none, the finding is about rope alone.",
            "above",
            10,
            "the interval of the difference lies below 10 points",
            is_primary=False,
            unit="points",
        ),
    ),
    left_out=(
        "Sine at its preset's 256 columns, other bases than 10 for sine, and the dose-response of the other seven "
        "bases: each would have doubled the cost of about one and a half core hours."
    ),
)


def _rope(base: int, factors: tuple[float, ...], usual: bool, number: int) -> list[Cell]:
    common: Cell = {"task": f"mod{base}", "bos": True, "architecture": "rope", "seed": seeds(number)}
    tuned: Cell = common | {"periods": [periods_of(base, factor) for factor in factors]}
    return [tuned, common] if usual else [tuned]


def periods_of(base: int, factor: float) -> list[float]:
    """The periods of the first two waves: the base and its double, detuned.

    >>> periods_of(7, 1.037)
    [7.259, 14.518]
    """
    return [round(base * factor, 6), round(2 * base * factor, 6)]


def _sine(factors: tuple[float, ...], usual: bool, number: int) -> list[Cell]:
    common: Cell = {"task": "mod10", "architecture": "sine", "seed": seeds(number)} | SINE
    tuned: Cell = common | {"periods": [periods_of(10, factor) for factor in factors]}
    return [tuned, common] if usual else [tuned]


CELLS = (
    *(
        cell
        for base in BASES
        for cell in _rope(base, FACTORS if base in DOSE_BASES else (EXACT, DETUNED), True, N_SEEDS)
    ),
    *_sine((EXACT, DETUNED), True, N_SEEDS),
)
QUICK_CELLS = (
    *(cell for base in DOSE_BASES for cell in _rope(base, (EXACT, 1.01, DETUNED), True, N_QUICK_SEEDS)),
    *_sine((EXACT, DETUNED), False, N_QUICK_SEEDS),
)


def factors(config: RunConfig) -> Row:
    """The scheme, base, arm and factor of a run."""
    _, base = split_base(config.data.task)
    assert base is not None
    periods = config.model.periods
    factor = None if periods is None else round(periods[0] / base, 4)
    arm = "usual" if factor is None else "exact" if factor == EXACT else "detuned"
    return {"scheme": config.model.position, "base": float(base), "arm": arm, "factor": factor}


def measure(run: RunFolder) -> Row:
    """The scores of the last checkpoint, how answers follow turned waves, and OOD with exchanged periods."""
    counter = load_counter(run.last)
    assert isinstance(counter, Transformer)
    assert counter.info is not None
    task, policy = task_of_counter(counter)
    assert task.period is not None
    numbers: Row = {"ind": counter.info.scores["ind"], "ood": counter.info.scores["ood"]}
    numbers |= dict.fromkeys(("clock_follows", "others_follow", "all_follow"))
    if counter.scheme.rotary:
        waves = range(counter.cfg.d_head // 2)
        for name, turned in (("clock_follows", waves[:2]), ("others_follow", waves[2:]), ("all_follow", waves)):
            numbers[name] = turn_waves(counter, turned).share
    exact = build_counter(replace(counter.cfg, periods=tuple(periods_of(task.period, EXACT))))
    exact.load_interchange_state(counter.interchange_state())
    return numbers | {"exchanged_ood": evaluate(exact.eval(), task, policy).ood}


def ideal_clock(base: int, factor: float, trained: int = 50, longest: int = 100) -> float:
    """The OOD, in percent, of a clock whose hand comes round every 2 * base * factor tokens.

    Beyond training it answers as at the nearest position of its hand in training. A token weighs as much as in OOD
    rows, which have all lengths up to the longest.

    >>> ideal_clock(10, 1.0), round(ideal_clock(10, 1.08)) < 50
    (100.0, True)
    """
    period = 2 * base * factor
    inside, beyond = np.arange(1, trained + 1), np.arange(trained + 1, longest + 1)
    rounds = (beyond[:, None] - inside) / period
    nearest = np.abs(rounds - rounds.round()).argmin(1)
    is_right = (beyond - inside[nearest]) % base == 0
    return float(100 * np.average(is_right, weights=longest + 1 - beyond))


def _least_gap(table: pd.DataFrame, weights: Weights) -> Numbers:
    by_base = np.ma.masked_invalid(gaps(table, weights, "ood", {"arm": "exact"}, {"factor": DETUNED}, "base"))
    return np.ma.filled(by_base.min(0), np.nan) if len(by_base) else np.full(len(weights), np.nan)


def _distance_from_ideal(table: pd.DataFrame, weights: Weights) -> Numbers:
    points = table[["base", "factor"]].drop_duplicates().to_dict("records")
    ood = table["ood"].to_numpy(float)
    distances = [
        np.abs(weighted_mean(ood, weights, has(table, point)) - ideal_clock(int(point["base"]), point["factor"]))
        for point in points
    ]
    return np.mean(distances, axis=0) if distances else np.full(len(weights), np.nan)


def estimate(table: pd.DataFrame) -> dict[str, Interval | None]:
    """The number of every claim."""
    rope, sine = (select(table, scheme=scheme) for scheme in ("rope", "sine"))
    dose = rope[rope["base"].isin(DOSE_BASES) & rope["factor"].notna()]
    exact, detuned, usual = {"arm": "exact"}, {"factor": DETUNED}, {"arm": "usual"}
    statistics: dict[str, tuple[pd.DataFrame, Statistic]] = {
        "exact beats detuned": (rope, difference("ood", exact, detuned, by="base")),
        "exact beats usual": (rope, difference("ood", exact, usual, by="base")),
        "dose and response": (dose, rank_correlation("factor", "ood")),
        "the clock turns the answer": (select(rope, arm="exact"), mean_gap("clock_follows", "others_follow")),
        "an ideal clock": (dose, _distance_from_ideal),
        "every base": (rope, _least_gap),
        "too late after training": (select(rope, arm="detuned"), mean_gap("exchanged_ood", "ood")),
        "sine as well": (sine, difference("ood", exact, detuned, by="base")),
    }
    return {name: over_seeds(runs, statistic) for name, (runs, statistic) in statistics.items()}


def draw(table: pd.DataFrame) -> tuple[Panel, ...]:
    """OOD by base and over the detuning, how answers follow turned waves, and OOD of sine."""
    rope, sine = (select(table, scheme=scheme) for scheme in ("rope", "sine"))
    arms: dict[str, dict[str, object]] = {
        "exact periods": {"arm": "exact"},
        f"{DETUNED - 1:.1%} longer": {"factor": DETUNED},
        "usual periods": {"arm": "usual"},
    }
    by_base = [series_by(label, select(rope, **arm), "base", "ood") for label, arm in arms.items()]
    doses = [base for base in DOSE_BASES if base in set(rope["base"])]
    dose = []
    for base in doses:
        runs = (
            select(rope, base=base).dropna(subset=["factor"]).assign(percent=lambda frame: 100 * (frame["factor"] - 1))
        )
        dose.append(series_by(f"modulo {base}", runs, "percent", "ood"))
        ideal = [Interval(value, value, value) for factor in FACTORS for value in [ideal_clock(base, factor)]]
        percents = tuple(round(100 * (factor - 1), 2) for factor in FACTORS)
        dose.append(Series(f"ideal clock, modulo {base}", percents, tuple(ideal), "dashed"))
    exact = select(rope, arm="exact")
    turned = {"first two waves": "clock_follows", "all other waves": "others_follow", "all waves": "all_follow"}
    turns = [series_by(f"{label} turned", exact, "base", column) for label, column in turned.items()]
    panels = [
        Panel("Rope beyond training, by base and periods", "base", "OOD %", tuple(by_base)),
        Panel("The more the periods are detuned, the less it counts on", "periods too long by %", "OOD %", tuple(dose)),
        Panel("Answers follow the waves that were set", "base", "share of answers that move along", tuple(turns)),
    ]
    if len(sine):
        waves = series_by("sine, modulo 10", sine, "arm", "ood", "points")
        panels.append(Panel("Sine with the same periods", "periods", "OOD %", (waves,), categories=True))
    return tuple(panels)


STUDY = Study(2, "Rope counts modulo b if its waves do", PROTOCOL, CELLS, QUICK_CELLS, factors, measure, estimate, draw)
