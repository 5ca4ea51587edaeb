"""How often each probe finds something where there is nothing, at the level 0.05.

    python benchmarks/false_alarms.py [draws] [part of a name]

Each draw is a fresh null: noise, walks and oscillators instead of activations, edits that do the same to both tokens,
curves that wander, counters and memories without a mechanism. Every line is the share of draws with an alarm, and what
95 % of honest tests at 0.05 lie below. The nulls of the mechanism probes are those of the tests, in `tests/helpers`; a
thousand draws of all nulls take about half an hour on one core.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests/helpers"))

from mechanism_nulls import (
    OF_MODES,
    explain_untrained,
    has_anchor,
    hypotheses_of,
    most_alarms,
    supported_by_dealt_modes,
    supported_by_hashed_counts,
    supported_by_random_table,
)

from probes.ablation.bos_ablation import MATTERS
from probes.over_training.order import CurveOrder, order_of
from probes.over_training.rises import find_rise, rise_p
from probes.reading.linear_probe import better_guess_p, label_p
from probes.reading.periods import find_period
from probes.reading.pid_or_answer import separate
from probes.stats import bounded_mean

ALPHA = 0.05
POSITIONS, SNAPSHOTS, RUNS = 127, 17, 8

Alarm = Callable[[np.random.Generator], bool | Sequence[bool]]  # of one draw: whether there is an alarm, or several


def with_seed(alarm: Callable[[int], bool | Sequence[bool]]) -> Alarm:
    """The alarm of a null that is drawn from a seed. All such nulls of one draw have the same seed."""
    return lambda generator: alarm(int(generator.integers(1 << 30)))


def supports(name: str, supported: Callable[[int], frozenset[str]]) -> Alarm:
    return with_seed(lambda seed: name in supported(seed))


def walk(generator: np.random.Generator, columns: int = 8) -> np.ndarray:
    return generator.normal(size=(POSITIONS, columns)).cumsum(0)


def oscillator(damping: float) -> Callable[[np.random.Generator], np.ndarray]:
    """AR(2) with a resonance at the period 10."""

    def sample(generator: np.random.Generator) -> np.ndarray:
        x = generator.normal(size=(POSITIONS + 100, 8))
        for position in range(2, len(x)):
            x[position] += 2 * damping * np.cos(0.2 * np.pi) * x[position - 1] - damping**2 * x[position - 2]
        return x[100:]

    return sample


def has_period(sample: Callable[[np.random.Generator], np.ndarray]) -> Alarm:
    return lambda generator: find_period(sample(generator), expected=10, permutations=1000).period is not None


def follows_something(walks: bool) -> Alarm:
    def alarm(generator: np.random.Generator) -> bool:
        x = generator.normal(size=(40, 40, 8))
        return separate(x.cumsum(1) if walks else x, 10).held != "neither"

    return alarm


def first_token(generator: np.random.Generator) -> bool:
    """A probe that says "first" at random, on 18 rows of 10 tokens."""
    rows, labels = np.repeat(np.arange(18), 10), np.tile(np.arange(10) == 0, 18)
    said = generator.random(180) < 0.3
    return label_p(said == labels, labels, rows, int(generator.integers(1 << 30))) <= ALPHA


def shift(generator: np.random.Generator) -> bool:
    """Two guesses of the shift that are equally good."""
    rows = np.repeat(np.arange(18), 10)
    truth = generator.uniform(0, 70, 18)[rows]
    one, other = (truth + 20 * generator.normal(size=18)[rows] for _ in range(2))
    return better_guess_p(one, other, truth, rows, int(generator.integers(1 << 30))) <= ALPHA


def beyond_control(share: float) -> Alarm:
    """Two edits that each leave a row right with the same probability: a difference that is said to matter."""

    def alarm(generator: np.random.Generator) -> bool:
        first, second = (generator.random((2, 64)) < share).astype(float)
        least, most, ones = -100 * second, 100 * (1 - second), np.ones(64)
        (found,) = bounded_mean(100 * (first - second)[None], ones, ones, least[None], most[None], seed=0)
        return found.high < -MATTERS or found.low > MATTERS

    return alarm


def rises(heavy_tailed: bool) -> Alarm:
    def alarm(generator: np.random.Generator) -> bool:
        changes = generator.standard_cauchy(SNAPSHOTS) if heavy_tailed else generator.normal(size=SNAPSHOTS)
        return rise_p([changes.cumsum()], [None], int(generator.integers(1 << 30))) <= ALPHA

    return alarm


def has_order(generator: np.random.Generator) -> bool:
    """Two walks that have nothing to do with each other, in each of several runs."""
    steps = np.arange(SNAPSHOTS)
    walks = generator.normal(size=(RUNS, 2, SNAPSHOTS)).cumsum(2)
    orders = tuple(order_of(*(find_rise(steps, scores, flips=1) for scores in pair)) for pair in walks)
    return CurveOrder("walk", orders, 0.0).claim is not None


NULLS: dict[str, Alarm] = {
    "mod_pca, period: white noise": has_period(lambda generator: generator.normal(size=(POSITIONS, 8))),
    "mod_pca, period: random walks": has_period(walk),
    "mod_pca, period: oscillator, damping 0.9": has_period(oscillator(0.9)),
    "mod_pca, period: oscillator, damping 0.95": has_period(oscillator(0.95)),
    "mod_pca, PID or answer: white noise": follows_something(walks=False),
    "mod_pca, PID or answer: random walks": follows_something(walks=True),
    "first_token, first": first_token,
    "first_token, shift": shift,
    "bos, beyond its control: half of the rows": beyond_control(0.5),
    "bos, beyond its control: 2 % of the rows": beyond_control(0.02),
    "dynamics, a rise: random walks": rises(heavy_tailed=False),
    "dynamics, a rise: heavy-tailed walks": rises(heavy_tailed=True),
    f"dynamics, an order: random walks, {RUNS} runs": has_order,
    "anchor: noise, and counters that moves break": with_seed(has_anchor),
    "mechanism, an explanation: untrained counters": with_seed(lambda seed: explain_untrained(seed)[0]),
    "mechanism, swaps: untrained counters": with_seed(lambda seed: explain_untrained(seed)[1]),
    **{
        f"mechanism, {name}: random tables": supports(name, supported_by_random_table)
        for name in hypotheses_of("modular")
    },
    **{
        f"mechanism, {name}: hashed counts": supports(name, supported_by_hashed_counts)
        for name in hypotheses_of("selective")
    },
    **{f"mechanism, {name}: modes dealt out again": supports(name, supported_by_dealt_modes) for name in OF_MODES},
}


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"| null, {draws} draws | false alarms at {ALPHA} | honest tests stay below | s |\n|---|---|---|---|")
    chosen = {name: alarm for name, alarm in NULLS.items() if len(sys.argv) < 3 or sys.argv[2] in name}
    for name, alarm in chosen.items():
        started = time.process_time()
        alarms = np.concatenate([np.atleast_1d(alarm(np.random.default_rng([draw, 11]))) for draw in range(draws)])
        share, bound = alarms.mean(), most_alarms(len(alarms)) / len(alarms)
        print(f"| {name} | {share:.3f} | {bound:.3f} | {time.process_time() - started:.0f} |", flush=True)


if __name__ == "__main__":
    main()
