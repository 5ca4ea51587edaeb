"""Counters trained with and without bos, side by side: the paper's two bos tables (appendices C and E)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from models.errors import CountLensError
from models.info import CheckpointInfo
from probes.result import Result, Verdict

Scores = tuple[float, float]  # percent right, IND and OOD
Setting = tuple[str, str, int]  # task, architecture, layers

# (task, layers): {architecture: (without bos, with bos)}, best of five seeds.
_PAPER: dict[tuple[str, int], dict[str, tuple[Scores, Scores]]] = {
    ("vanilla_succession", 1): {"nope": ((2.0, 0.0), (100.0, 0.0)), "rope": ((2.0, 0.0), (100.0, 0.0))},
    ("vanilla_succession", 2): {"nope": ((2.0, 0.0), (100.0, 0.0)), "rope": ((2.0, 0.0), (100.0, 0.0))},
    ("vanilla_succession", 4): {"nope": ((2.0, 0.0), (100.0, 0.0)), "rope": ((2.0, 0.0), (100.0, 0.0))},
    ("mod10", 1): {"nope": ((11.8, 11.8), (100.0, 10.1)), "rope": ((11.8, 11.8), (100.0, 27.8))},
    ("mod10", 2): {"nope": ((12.0, 11.8), (100.0, 8.6)), "rope": ((11.8, 11.8), (100.0, 40.3))},
    ("mod10", 4): {"nope": ((11.8, 11.8), (100.0, 8.6)), "rope": ((11.8, 11.8), (100.0, 41.6))},
    ("selective", 1): {
        "nope": ((100.0, 9.3), (100.0, 99.5)),
        "sine": ((100.0, 68.8), (100.0, 98.3)),
        "ape": ((100.0, 10.6), (100.0, 99.4)),
        "rope": ((100.0, 29.9), (100.0, 68.2)),
        "spe": ((100.0, 61.3), (100.0, 98.3)),
    },
    ("selective", 2): {
        "nope": ((100.0, 94.1), (100.0, 99.9)),
        "sine": ((100.0, 32.6), (100.0, 100.0)),
        "ape": ((100.0, 13.9), (100.0, 95.8)),
        "rope": ((100.0, 49.1), (100.0, 40.9)),
        "spe": ((100.0, 86.9), (100.0, 99.9)),
    },
}
PAPER: dict[Setting, tuple[Scores, Scores]] = {
    (task, architecture, layers): both
    for (task, layers), columns in _PAPER.items()
    for architecture, both in columns.items()
}
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
        return PAPER.get((self.task, self.architecture, self.layers))

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
    """The (with bos, without bos) pairs among some checkpoints: same task, architecture, layers and seed."""
    found: dict[tuple[Setting, int | None], dict[bool, CheckpointInfo]] = {}
    for info in infos:
        if info.task is not None:
            found.setdefault((_setting(info), info.seed), {})[_has_bos(info)] = info
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
