"""Headlines of results that do not state their own: a label that seeds can agree on, and the number behind it.

A result states its own by overriding `Result.headline`; then it needs no entry here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from probes.ablation.bos_ablation import BosAblation
from probes.mechanism.anchors import Anchors
from probes.mechanism.memory_verdict import MemoryMechanisms
from probes.mechanism.transplants import MemoryParts
from probes.mechanism.verdict import Mechanisms
from probes.over_training.dynamics import REFERENCE, Dynamics
from probes.patching.pairs import PairPatching
from probes.reading.attention_variation import AttentionVariation
from probes.reading.behaviour import Behaviour
from probes.reading.first_token import READ, FirstToken
from probes.reading.logit_lens import LogitLens
from probes.reading.mod_pca import ModPca
from probes.result import PERCENT, SHARE, Headline, Result
from probes.stats import Interval


def headline_of(result: Result) -> Headline:
    """The label and the number of any result."""
    states_its_own = type(result).headline is not Result.headline
    return result.headline if states_its_own or type(result) not in HEADLINES else HEADLINES[type(result)](result)


def _behaviour(result: Behaviour) -> Headline:
    return Headline.of(
        result.verdict.sentence.partition(":")[0].lower(), "OOD accuracy (%)", result.total["ood"], PERCENT
    )


def _first_token(result: FirstToken) -> Headline:
    best = result.best_first.first
    label = "first token read" if best.value >= READ else "first token not read"
    return Headline.of(label, "balanced accuracy at the best site", best, SHARE)


def _mod_pca(result: ModPca) -> Headline:
    period = result.clearest.period
    label = "no period" if period is None else f"period {period}"
    return Headline(label, "cluster score at the clearest site", result.clearest.score)


def _attention(result: AttentionVariation) -> Headline:
    layer = result.layers[0]
    measure = f"variation over positions / spread between tokens, layer {layer.layer}"
    if not np.isfinite(layer.ratio):
        return Headline("one pair of tokens", measure)
    label = "tokens and positions alike"
    if layer.high < 1:
        label = "tokens more than positions"
    elif layer.low > 1:
        label = "positions more than tokens"
    return Headline(label, measure, layer.ratio, layer.low, layer.high)


def _bos(result: BosAblation) -> Headline:
    edit = result.effects[[effect.layer is None for effect in result.effects].index(True)]
    label = f"{result.first} {'matters' if edit.matters else 'does not matter'}"
    return Headline.of(label, f"change in OOD accuracy (points), {result.describe(edit)}", edit.ood)


def _logit_lens(result: LogitLens) -> Headline:
    site, means = result.ready_at["ind"], result.accuracy["ind"]
    label = "answers no better than a constant" if site is None else f"answers read from {site} on"
    last = Interval(*(float(part[-1]) for part in (means.value, means.low, means.high)))
    return Headline.of(label, "IND accuracy of the last site (%)", last, PERCENT)


def _patching(result: PairPatching) -> Headline:
    strongest = {site: float(np.abs(result.effect(site)).max()) for site in result.grids}
    site = max(strongest, key=lambda name: strongest[name])
    kind = "share of the difference" if result.relative else f"change in {result.metric}"
    return Headline(f"most at {site}", f"largest effect of one patch ({kind})", strongest[site])


def _mechanism(result: Mechanisms) -> Headline:
    best = result.winner or max(result.hypotheses, key=lambda tested: tested.score.value)
    label = best.name if result.winner is not None else "none"
    return Headline.of(label, "worst claim of the best algorithm (share of swaps)", best.score, SHARE)


def _memory(result: MemoryMechanisms) -> Headline:
    best = max(result.hypotheses, key=lambda tested: (tested.supported, tested.testable, tested.margin.value))
    label = best.name if best.supported else "none"
    return Headline.of(label, "margin of the worst claim of the best algorithm over its best null (share)", best.margin)


def _memory_parts(result: MemoryParts) -> Headline:
    measure = "answers that follow this part alone, minus all but it (share)"
    testable = [part for part in result.parts if not part.forced]
    if len(result.parts) == 1 or not testable:
        return Headline("not testable", measure)
    best = max(testable, key=lambda part: part.margin.value)
    return Headline.of(best.part.label if result.holders else "no part alone", measure, best.margin)


def _anchors(result: Anchors) -> Headline:
    label = result.best.name if result.stands_out else "none stands out"
    return Headline.of(
        label, "answers to moved PIDs that the best anchor predicts (share)", result.best.accuracy, SHARE
    )


def _dynamics(result: Dynamics) -> Headline:
    rise = result.rises[REFERENCE]
    measure = "step at which OOD accuracy has risen"
    if not rise.sure:
        return Headline("OOD accuracy does not surely rise", measure)
    return Headline("OOD accuracy rises", measure, rise.end)


HEADLINES: dict[type[Result], Callable[[Any], Headline]] = {
    Behaviour: _behaviour,
    FirstToken: _first_token,
    ModPca: _mod_pca,
    AttentionVariation: _attention,
    BosAblation: _bos,
    LogitLens: _logit_lens,
    PairPatching: _patching,
    Mechanisms: _mechanism,
    MemoryMechanisms: _memory,
    MemoryParts: _memory_parts,
    Anchors: _anchors,
    Dynamics: _dynamics,
}
