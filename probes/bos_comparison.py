"""Counters trained with and without bos, side by side: the paper's two bos tables (appendices C and E)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from models.errors import CountLensError
from models.info import CheckpointInfo
from probes.result import Result, Verdict
from training.paper import paper_numbers

Scores = tuple[float, float]  # percent right, IND and OOD
Setting = tuple[str, str, int]  # task, architecture, layers

CLEARLY = 10.0  # points: of the paper's differences, those above this are claims; ours must be above it too


@dataclass(frozen=True)
class BosPair:
    """Two counters of the same setting, in percent right."""

    task: str
    architecture: str
    layers: int
    seed: int | None
    without_bos: Scores
    with_bos: Scores

    @property
    def paper(self) -> tuple[Scores, Scores] | None:
        """The paper's scores without and with bos."""
        found = [paper_numbers(self.task, bos, self.architecture, self.layers) for bos in (False, True)]
        best = [numbers.best for numbers in found if numbers is not None and numbers.best is not None]
        return ((best[0].ind, best[0].ood), (best[1].ind, best[1].ood)) if len(best) == 2 else None

    @property
    def agrees(self) -> bool | None:
        """Whether bos lifts what it clearly lifts in the paper; None where the paper has nothing clear."""
        if self.paper is None:
            return None
        ours, theirs = _lifts(self.without_bos, self.with_bos), _lifts(*self.paper)
        claims = [our > CLEARLY for our, their in zip(ours, theirs, strict=True) if their > CLEARLY]
        return all(claims) if claims else None


@dataclass(frozen=True)
class BosComparison(Result):
    """What bos does for training, pair by pair."""

    pairs: tuple[BosPair, ...]

    @property
    def verdict(self) -> Verdict:
        judged = [pair for pair in self.pairs if pair.agrees is not None]
        lifts = "; ".join(
            f"{pair.task} {pair.architecture}-{pair.layers}L {ind:+.1f} IND, {ood:+.1f} OOD"
            for pair in self.pairs
            for ind, ood in [_lifts(pair.without_bos, pair.with_bos)]
        )
        agreeing = sum(pair.agrees is True for pair in judged)
        counted = f"; {agreeing} of {len(judged)} pairs do what the paper clearly claims" if judged else ""
        return Verdict(
            f"Training with bos instead of without changes accuracy by, in points: {lifts}{counted}.",
            f"The paper's claims are its differences above {CLEARLY:.0f} points; a pair agrees when bos lifts ours by "
            "as much as that too.",
            all(pair.agrees for pair in judged) if judged else None,
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a counter: the paper's tables, on end."""
        lines = []
        for pair in self.pairs:
            setting = {"task": pair.task, "architecture": pair.architecture, "layers": pair.layers, "seed": pair.seed}
            theirs: Sequence[Scores | tuple[None, None]] = pair.paper or [(None, None)] * 2
            for bos, ours, paper in zip((False, True), (pair.without_bos, pair.with_bos), theirs, strict=True):
                scores = {"ind": ours[0], "ood": ours[1], "paper_ind": paper[0], "paper_ood": paper[1]}
                lines.append({**setting, "bos": bos, **scores})
        return pd.DataFrame(lines).astype({"seed": "Int64", "paper_ind": "float64", "paper_ood": "float64"})


def bos_comparison(pairs: Sequence[tuple[CheckpointInfo, CheckpointInfo]]) -> BosComparison:
    """What bos changes, from (with bos, without bos) pairs of checkpoints; `pairs_by_bos` finds them."""
    if not pairs:
        raise CountLensError("no pairs to compare: give (with bos, without bos) checkpoints of the same setting")
    return BosComparison(tuple(_pair(*pair) for pair in pairs))


def pairs_by_bos(infos: Iterable[CheckpointInfo]) -> list[tuple[CheckpointInfo, CheckpointInfo]]:
    """The (with bos, without bos) pairs of one task, architecture and depth, the best checkpoint of each."""
    found: dict[Setting, dict[bool, CheckpointInfo]] = {}
    for info in sorted(infos, key=lambda info: info.scores.get("ind", 0.0) + info.scores.get("ood", 0.0)):
        if info.task is not None:
            found.setdefault(_setting(info), {})[_has_bos(info)] = info
    return [(both[True], both[False]) for both in found.values() if len(both) == 2]


def _pair(with_bos: CheckpointInfo, without_bos: CheckpointInfo) -> BosPair:
    if not _has_bos(with_bos) or _has_bos(without_bos):
        raise CountLensError("a pair is (with bos, without bos), in this order")
    if _setting(with_bos) != _setting(without_bos):
        raise CountLensError(
            f"{_setting(with_bos)} with bos and {_setting(without_bos)} without: compare counters of one setting"
        )
    ours = [(info.scores["ind"], info.scores["ood"]) for info in (without_bos, with_bos)]
    seed = with_bos.seed if with_bos.seed == without_bos.seed else None
    return BosPair(*_setting(with_bos), seed, *ours)


def _setting(info: CheckpointInfo) -> Setting:
    if info.task is None:
        raise CountLensError("a checkpoint that does not say what it was trained on cannot be compared")
    return info.task["name"], info.model.get("position", info.family), info.model["n_layers"]


def _has_bos(info: CheckpointInfo) -> bool:
    return bool((info.task or {}).get("bos"))


def _lifts(without_bos: Scores, with_bos: Scores) -> tuple[float, float]:
    return with_bos[0] - without_bos[0], with_bos[1] - without_bos[1]
