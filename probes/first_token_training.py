"""Counters trained to recognise the first token, next to the paper's (appendices D and E).

Only the first token is scored: "no" is right everywhere else, so that a counter which never says "yes" would seem good.
As in the paper, the best of several seeds speaks for a kind of counter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from models.checkpoint import load_counter
from models.config import TransformerConfig
from models.counter import Counter
from models.errors import CountLensError
from probes.result import Result, Verdict, task_of_counter
from training.evaluate import FINAL_ROWS, evaluate

SUCCEEDS = 95.0  # percent

# Percent IND and OOD of the paper's one-layer, one-head counters, by task, scheme, causal mask and width.
PAPER: dict[tuple[str, str, bool, int], tuple[float, float]] = {
    ("first_tok_homogeneous", scheme, True, width): (percent, percent)
    for scheme, percent in {"nope": 0.0, "sine": 100.0, "ape": 100.0, "rope": 0.0, "spe": 100.0}.items()
    for width in (32, 4)
} | {
    ("first_tok_heterogeneous", "nope", True, 4): (100.0, 100.0),
    ("first_tok_heterogeneous", "nope", False, 4): (4.0, 0.0),
}


@dataclass(frozen=True)
class FirstTokenScore:
    """One kind of counter: its best seed, next to the paper's."""

    task: str
    scheme: str
    causal: bool
    width: int
    layers: int
    heads: int
    seeds: int  # how many were there to choose from
    ind: float
    ood: float
    paper: tuple[float, float] | None  # IND and OOD; None where the paper has no such counter

    @property
    def agrees(self) -> bool | None:
        """Whether it fits and generalises where the paper's does, and fails where that fails."""
        if self.paper is None:
            return None
        mine, theirs = ([score >= SUCCEEDS for score in scores] for scores in ((self.ind, self.ood), self.paper))
        return mine == theirs

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        return f"{self.scheme} ({'' if self.causal else 'no causal mask, '}{self.width} wide)"


@dataclass(frozen=True)
class FirstTokenTraining(Result):
    """Scores at the first token of all kinds of counters that there were."""

    scores: tuple[FirstTokenScore, ...]

    @property
    def verdict(self) -> Verdict:
        parts = []
        for task in dict.fromkeys(score.task for score in self.scores):
            ours = [score for score in self.scores if score.task == task]
            good = [score.label for score in ours if score.ood >= SUCCEEDS]
            bad = [score.label for score in ours if score.ood < SUCCEEDS]
            parts.append(f"{task}: the first token of longer rows is recognised by {', '.join(good) or 'none'}")
            parts[-1] += f" and not by {', '.join(bad)}" if bad else ""
        known = [score.agrees for score in self.scores if score.agrees is not None]
        unlike = [f"{score.label} ({score.task})" for score in self.scores if score.agrees is False]
        if unlike:
            parts.append(f"unlike the paper: {', '.join(unlike)}")
        return Verdict(
            ". ".join(parts),
            f"another seed on the other side of {SUCCEEDS:.0f} %, in or out of distribution",
            all(known) if known else None,
        )

    def to_frame(self) -> pd.DataFrame:
        """One line a kind of counter."""
        lines = []
        for score in self.scores:
            line = vars(score) | {"agrees": score.agrees}
            theirs = line.pop("paper") or (None, None)
            lines.append(line | {"paper_ind": theirs[0], "paper_ood": theirs[1]})
        return pd.DataFrame(lines)


def first_token_training(counters: Sequence[Counter | str | Path], rows: int = FINAL_ROWS) -> FirstTokenTraining:
    """Scores of counters trained on a first-token task, or of the checkpoints of these names, next to the paper's."""
    loaded = [one if isinstance(one, Counter) else load_counter(one) for one in counters]
    if not loaded:
        raise CountLensError("no counters: name checkpoints of first_tok_homogeneous or first_tok_heterogeneous")
    kinds: dict[tuple[str, str, bool, int, int, int], list[tuple[float, float]]] = {}
    for counter in loaded:
        task, policy = task_of_counter(counter)
        cfg = counter.cfg
        if not task.name.startswith("first_tok") or not isinstance(cfg, TransformerConfig):
            raise CountLensError(
                f"this counter was trained on {task.name}, as {type(counter).__name__}: "
                "name transformers trained on first_tok_homogeneous or first_tok_heterogeneous"
            )
        scores = evaluate(counter, task, policy, rows)
        kind = (task.name, cfg.position, cfg.causal, cfg.d_model, cfg.n_layers, cfg.n_heads)
        kinds.setdefault(kind, []).append((scores.ind, scores.ood))
    return FirstTokenTraining(tuple(_best(*kind, scores) for kind, scores in kinds.items()))


def _best(
    task: str, scheme: str, causal: bool, width: int, layers: int, heads: int, scores: list[tuple[float, float]]
) -> FirstTokenScore:
    """The best of some seeds, by the mean of IND and OOD."""
    paper = PAPER.get((task, scheme, causal, width)) if (layers, heads) == (1, 1) else None
    ind, ood = max(scores, key=sum)
    return FirstTokenScore(task, scheme, causal, width, layers, heads, len(scores), ind, ood, paper)
