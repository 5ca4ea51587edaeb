"""Which tokens tell a modular counter where its row begins? PIDs of single tokens are moved, and answers watched.

Swapping whole rows cannot tell: the first token's PID, the second's and the mean of all of them move together then.
Here the PID of one token, or those of the first few, are moved while all others stay. An *anchor* is a small causal
model: the distance from the beginning that a counter with this anchor sees at each token, from the PIDs of the row
alone. Its score is how often the counter answers accordingly, over tokens about which the anchors disagree and which no
move takes out of the distances of training; every kind of move counts alike. It has two nulls: the score of predictions
for other rows with the same kind of move (*permuted*), and the best score of the other anchors (*wrong anchor*).
An anchor is also no better than at the kind of move that it explains least: a vote of tokens 2 to 4 is a vote of the
first five as long as only the first few tokens are moved together, and what ignores every beginning counts tokens as
long as its own PID stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from models.counter import Counter
from probes.mechanism.anchor_formulas import ANCHORS, Anchor
from probes.mechanism.grades import GRADES, SUPPORTED, grade, of_what_is_left, surplus
from probes.mechanism.moved_positions import OWN, ROWS, MovedRows, anchor_hits, share_of_rows
from probes.result import SHARE, Headline, Result, Verdict, task_of_counter
from probes.stats import Interval
from training.tasks import Task

MOSTLY_RIGHT = 0.9  # of tokens: where fewer are answered right, the verdict says how many it is about
LITTLE = 0.1  # the surplus of an anchor that fails at some kind of move is no more than this


@dataclass(frozen=True)
class AnchorScore:
    """An anchor, and how often a counter answers as its formula says."""

    name: str
    equation: str
    accuracy: Interval
    permuted: Interval | None  # the null; None where the predictions are the same for all rows
    by_distance: dict[str, float]  # accuracy by the distance that is implied: below 1, trained, beyond; NaN: never is


@dataclass(frozen=True)
class MoveEffect:
    """What a move of some tokens' PIDs does to the answers."""

    tokens: str
    follows: Interval  # share of answers that move by as many places, as they do if these tokens are the anchor
    changes: Interval  # share of answers that change at all


@dataclass(frozen=True)
class Anchors(Result):
    """Every anchor's score, from the best on, and what each kind of move does."""

    task: str
    right: float  # share of tokens answered right with nothing moved; the others are left out
    anchors: tuple[AnchorScore, ...]
    leads: tuple[Interval, ...]  # of each anchor over the best of the others, on the same rows
    moves: tuple[MoveEffect, ...]
    expected: str | None  # the paper's anchor; None: it names none for such a counter
    worst_move: str  # the kind of move that the best anchor explains least
    worst_surplus: float  # what it surely explains there of that which predictions for other rows leave open

    @property
    def best(self) -> AnchorScore:
        return self.anchors[0]

    @property
    def lead(self) -> Interval:
        """How much more the best anchor predicts than the second best."""
        return self.leads[0]

    @property
    def surplus(self) -> float:
        """The surplus of the best anchor: the share that it surely explains of what its nulls leave open."""
        return anchor_surplus(self.best.accuracy, self.best.permuted, self.lead, self.worst_surplus)

    @property
    def grade(self) -> str:
        """`strong`, `partial`, `weak` or `none`."""
        return grade(self.surplus)

    @property
    def stands_out(self) -> bool:
        """Whether the best anchor surely explains more than its null and than every other anchor."""
        return self.surplus > 0

    @property
    def headline(self) -> Headline:
        label = self.best.name if self.stands_out else "none stands out"
        return Headline.of(
            label, "answers to moved PIDs that the best anchor predicts (share)", self.best.accuracy, SHARE
        )

    @property
    def verdict(self) -> Verdict:
        score = f"{self.best.name} predicts {_percent(self.best.accuracy)} of the answers to moved PIDs"
        second = f"{self.anchors[1].name} {self.anchors[1].accuracy.value:.0%}"
        if self.best.permuted is not None:
            second += f", predictions for other rows {self.best.permuted.value:.0%}"
        if self.stands_out:
            opening = f"Its anchor is {self.best.name} ({self.grade}): {score}"
        else:
            opening = f"No anchor stands out: {score}"
        follows = {move.tokens: move.follows.value for move in self.moves}
        groups = {tokens: share for tokens, share in follows.items() if tokens.startswith("first ")}
        together = max(groups, key=lambda tokens: groups[tokens])
        sentence = (
            f"{opening}, {second}.{self._failure} Answers follow the first token alone in {follows['token 1']:.0%}, "
            f"the {together} in {follows[together]:.0%} of cases."
        )
        if self.right < MOSTLY_RIGHT:
            sentence += f" This is about the {self.right:.0%} of tokens that it answers right."
        agrees = None if self.expected is None else self.grade in SUPPORTED and self.best.name == self.expected
        return Verdict(sentence, "another anchor that predicts the answers to moved PIDs surely better", agrees)

    @property
    def _failure(self) -> str:
        """Which kind of move the best anchor does not explain, or hardly."""
        if grade(self.worst_surplus) == GRADES[-1]:
            return ""
        what = "the token's own PID" if self.worst_move == OWN else self.worst_move
        return f" It explains {'little' if self.worst_surplus > 0 else 'nothing'} of moves of {what}."

    def to_frame(self) -> pd.DataFrame:
        """One line per anchor."""
        lines = [
            {
                "anchor": score.name,
                "equation": score.equation,
                "accuracy": score.accuracy.value,
                "low": score.accuracy.low,
                "high": score.accuracy.high,
                "permuted": None if score.permuted is None else score.permuted.value,
                "lead": lead.value,
                "lead low": lead.low,
                **{f"implied distance {name}": share for name, share in score.by_distance.items()},
            }
            for score, lead in zip(self.anchors, self.leads, strict=True)
        ]
        return pd.DataFrame(lines)


def anchor_surplus(accuracy: Interval, permuted: Interval | None, lead: Interval, at_worst: float) -> float:
    """The surplus over both nulls: over the wrong anchor by the lead, which is taken on the same rows.

    It is no more than the surplus at the worst kind of move; one that fails there may still be a weak claim.
    """
    over_wrong = of_what_is_left(lead.low, accuracy.value - lead.value)
    return min(over_wrong, surplus(accuracy, [] if permuted is None else [permuted]), max(at_worst, LITTLE))


def _percent(interval: Interval) -> str:
    return f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def anchor_probe(counter: Counter, anchors: Mapping[str, Anchor] = ANCHORS, rows: int = ROWS, seed: int = 0) -> Anchors:
    """Which anchor predicts a modular counter's answers when the PIDs of single tokens are moved."""
    task, _ = task_of_counter(counter)
    hits = anchor_hits(counter, anchors, rows, seed)
    scores = [
        AnchorScore(
            name,
            anchor.equation,
            hits.score(name),
            hits.permuted(name),
            _by_distance(hits.distances[name], hits.predicted[name] == hits.moves.answers, hits.disputed, task),
        )
        for name, anchor in anchors.items()
        if name in hits.hits
    ]
    scores.sort(key=lambda score: -score.accuracy.value)
    best, second = (score.name for score in scores[:2])
    leads = [hits.share(hits.hits[score.name] - hits.hits[second if score.name == best else best]) for score in scores]
    is_in_paper = getattr(counter.cfg, "position", None) in ("ape", "sine") and not task.bos
    expected = "first token" if is_in_paper else None
    effects = _effects(hits.moves, task, seed)
    return Anchors(
        task.name, hits.right, tuple(scores), tuple(leads), effects, expected, *hits.worst_kind(scores[0].name)
    )


def _by_distance(
    distances: Float[Tensor, "move row pos"],
    hit: Bool[Tensor, "move row pos"],
    disputed: Bool[Tensor, "move row pos"],
    task: Task,
) -> dict[str, float]:
    """Accuracy by the distance from the beginning that an anchor implies."""
    counted = distances - task.prefix + 1
    ranges = {
        "below 1": counted < 1,
        "trained": (counted >= 1) & (counted <= task.train_length),
        "beyond": counted > task.train_length,
    }
    return {name: float(hit[disputed & within].double().mean()) for name, within in ranges.items()}


def _effects(moves: MovedRows, task: Task, seed: int) -> tuple[MoveEffect, ...]:
    """What each kind of move does to the answers: at the moved token itself, or at all later ones."""
    column = torch.arange(moves.pids.shape[-1])
    effects = []
    for index, kind in enumerate(moves.kinds):
        step = moves.steps[index, :, None] * (1 if kind == OWN else -1)
        followed = task.answer_ids(column - task.prefix + step)
        watched = moves.watched[index]
        counts = watched.sum(-1)[None].double().numpy()
        shares = [
            share_of_rows((same & watched).sum(-1)[None].double().numpy(), counts, seed)
            for same in (moves.answers[index] == followed, moves.answers[index] != moves.unmoved[index])
        ]
        effects.append(MoveEffect(kind, *shares))
    return tuple(effects)
