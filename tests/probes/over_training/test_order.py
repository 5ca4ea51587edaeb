"""Orders over runs: planted ones, one process read on two scales, and walks that have none."""

import numpy as np
import pytest

from models.header import CheckpointInfo
from probes.over_training.dynamics import Dynamics
from probes.over_training.order import CurveOrder, OrderOverRuns, order_of_seeds, order_over_runs
from probes.result import NotApplicable

SNAPSHOTS = 17
STEPS = np.arange(SNAPSHOTS) ** 2


def noise(generator: np.random.Generator, spread: float = 0.01) -> np.ndarray:
    return spread * generator.normal(size=SNAPSHOTS)


def sigmoid(middle: float) -> np.ndarray:
    return 1 / (1 + np.exp(2 * (middle - np.arange(SNAPSHOTS))))


def runs_of(number: int, curves: object, seed: int = 0) -> OrderOverRuns:
    """Runs whose curves are made by a function of a generator."""
    results = {}
    for run in range(number):
        made = curves(np.random.default_rng([seed, run]))
        results[f"seed{run}"] = Dynamics(STEPS, made, {}, {})
    return order_over_runs(results)


def planted(first: float, second: float) -> object:
    def curves(generator: np.random.Generator) -> dict[str, np.ndarray]:
        by = generator.uniform(-1, 1)
        return {
            "score": sigmoid(first + by) + noise(generator),
            "ood": sigmoid(second + by) + noise(generator),
        }

    return curves


@pytest.mark.parametrize(("first", "second", "claim"), [(3, 12, "before"), (12, 3, "after"), (8, 8, None)])
def test_a_planted_order_is_found_over_eight_runs(first: float, second: float, claim: str | None) -> None:
    (found,) = runs_of(8, planted(first, second)).curves
    assert found.claim == claim


def test_few_runs_make_no_claim_though_they_agree() -> None:
    for number, claim in ((1, None), (2, None), (5, None), (6, "before")):
        assert CurveOrder("score", ("before",) * number, 0.001).claim == claim
    assert CurveOrder("score", ("before",) * 6 + ("overlapping",) * 6, 0.001).claim is None
    assert CurveOrder("score", ("before",) * 9 + ("after",) * 3, 0.001).claim is None


@pytest.mark.parametrize("power", [8, 30, 1 / 8])
@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_one_process_on_two_scales_has_no_order(power: float, spread: float) -> None:
    """Each read with its own error of measurement."""

    def curves(generator: np.random.Generator) -> dict[str, np.ndarray]:
        p = np.clip(np.linspace(0.05, 1, SNAPSHOTS) + noise(generator, 0.02), 0, 1)
        return {"score": p + noise(generator, spread), "ood": p**power + noise(generator, spread)}

    (found,) = runs_of(12, curves).curves
    assert found.claim is None


def test_random_walks_have_an_order_no_more_often_than_promised() -> None:
    def curves(generator: np.random.Generator) -> dict[str, np.ndarray]:
        return dict(zip(("score", "ood"), generator.normal(size=(2, SNAPSHOTS)).cumsum(1), strict=True))

    claims = [runs_of(8, curves, seed).curves[0].claim for seed in range(60)]
    assert len(claims) - claims.count(None) <= 7


def test_the_sentence_has_the_share_and_its_interval() -> None:
    result = OrderOverRuns(
        tuple("abcdef"),
        0.001,
        (
            CurveOrder("clusters", ("before",) * 6, 0.001),
            CurveOrder("first token", ("before",) * 4 + ("overlapping",) * 2, 0.001),
            CurveOrder("attention", ("overlapping",) * 6, 0.7),
        ),
    )
    assert result.verdict.sentence == (
        "Over 6 runs, relative to OOD accuracy: clusters rises before it (before it in 6 of 6 runs: 100%, 54% to "
        "100%); first token has no sure order with it (before it in 4 of 6 runs: 67%, 22% to 96%); attention has no "
        "sure rise (p = 0.70)."
    )
    assert len(result.to_frame()) == 18
    flat = OrderOverRuns(("a", "b"), 0.4, ())
    assert flat.verdict.sentence == "OOD accuracy has no sure rise over 2 runs (p = 0.40)."


def test_counters_of_different_kinds_are_not_compared() -> None:
    run = Dynamics(STEPS, {"ood": sigmoid(8)}, {}, {})
    infos = {name: CheckpointInfo(name, {}) for name in ("transformer", "lstm")}
    with pytest.raises(NotApplicable, match="differ in more"):
        order_of_seeds(infos, {"transformer": run, "lstm": run})
    with pytest.raises(NotApplicable, match="at least two runs"):
        order_over_runs({"a": run})
