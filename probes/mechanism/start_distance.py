"""What does a counter add to its start number? Position ids are moved, tokens left out, and the start number swapped.

A row `7 a a a` is to be answered `8 9 10`. That can be done in three ways, which only unusual rows tell apart:

    PID distance      start + own PID - PID of the start token
    PIDs of symbols   start + own PID - PID of the first symbol + 1
    tokens            start + the number of tokens since

In `start moved` the start token alone gets another PID, in `symbol moved` the first symbol, in `own moved` every third
token that answers; in `gap` all tokens from the eleventh on do; in `tokens left out` some symbols are taken out of the
row and the others keep their PIDs. Each way
predicts every answer; its score is how often it is right where the ways disagree, and every kind of row counts alike.
A way explains the answers only in part if it fails on one kind. The control is the prediction for another row. Where
rows have several start numbers, the key or the value of the start token is then taken from a row with another one,
layer by layer: do the answers follow that number?
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.counter import Counter
from models.hooks import hook_name
from models.transformer import Transformer
from probes.ablation.edits import Hooks
from probes.ablation.outcomes import CausalTest, Outcome
from probes.inputs.counterfactual_rows import counted_rows
from probes.result import SHARE, Headline, NotApplicable, Verdict, task_of_counter
from probes.stats import Interval, bootstrap, share_interval, wilson
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

ROWS = 64
LARGEST_MOVE = 9
GAP_AT, LEFT_OUT_FROM, WATCHED_FROM = 10, 5, 15  # columns
SWAPPED = "swapped "
MANY = 0.5  # of answers: below this, the best way leaves most of them unexplained
LEAST_RIGHT = 0.3
TRAINED, BEYOND = "trained", "beyond"  # lengths of rows

Ids = Int[Tensor, "row pos"]
Way = Callable[[Ids], Ids]  # from PIDs to what is added to the start number


WAYS: dict[str, Way] = {
    "PID distance": lambda pids: pids - pids[:, :1],
    "PIDs of symbols": lambda pids: pids - pids[:, 1:2] + 1,
    "tokens": lambda pids: torch.arange(pids.shape[1], device=pids.device).expand(pids.shape),
}


@dataclass(frozen=True)
class Added(Outcome):
    """How often one way to count predicts the answers to one kind of row."""

    way: str = ""  # key of WAYS; "" for swaps of the start number
    lengths: str = TRAINED


@dataclass(frozen=True)
class StartDistance(CausalTest):
    """What is added to the start number, and where that number enters."""

    task: str
    right: dict[str, float]  # by lengths, share of answers that are right with nothing moved; only those are judged
    outcomes: tuple[Added, ...]
    scores: dict[str, Interval]  # of each way, at trained lengths, mean over the kinds of rows
    leads: dict[str, Interval]  # of the best way over each other one

    @property
    def best(self) -> str:
        """The way that predicts most."""
        return max(self.scores, key=lambda way: self.scores[way].value)

    @property
    def stands_out(self) -> bool:
        """Whether the best way surely predicts more than every other one."""
        return all(lead.low > 0 for lead in self.leads.values())

    @property
    def headline(self) -> Headline:
        score = self.scores[self.best]
        label = f"start + {self.best}"
        if not self.stands_out or score.value < MANY:
            label = "no way explains most answers"
        elif min(outcome.share.low for outcome in self._of(self.best, TRAINED)) < MANY:
            label += " in part"
        return Headline.of(label, "answers to unusual rows that it predicts (share)", score, SHARE)

    @property
    def verdict(self) -> Verdict:
        score = self.scores[self.best]
        kinds = ", ".join(f"{outcome.done} {outcome.share.value:.0%}" for outcome in self._of(self.best, TRAINED))
        sentence = (
            f"{self.headline.label[0].upper()}{self.headline.label[1:]}: {self.best} predicts {score.value:.0%} "
            f"({score.low:.0%} to {score.high:.0%}) of the answers ({kinds})"
        )
        beyond = self._of(self.best, BEYOND)
        if beyond:
            sentence += f", beyond training lengths {sum(outcome.share.value for outcome in beyond) / len(beyond):.0%}"
        others = ", ".join(f"{way} {self.scores[way].value:.0%}" for way in self.scores if way != self.best)
        sentence += f"; {others}."
        swaps = [outcome for outcome in self.outcomes if not outcome.way]
        if swaps:
            most = max(swaps, key=lambda outcome: outcome.share.value)
            enters = "enters most" if most.stands_out else "enters nowhere alone; most"
            sentence += (
                f" The start number {enters} by the start token's {most.done.removeprefix(SWAPPED)}: {most.text} "
            )
            sentence += "follow it."
        return Verdict(sentence, "another way that predicts the answers surely better")

    def _of(self, way: str, lengths: str) -> list[Added]:
        return [outcome for outcome in self.outcomes if (outcome.way, outcome.lengths) == (way, lengths)]


def start_distance(counter: Counter, rows: int = ROWS, seed: int = 0) -> StartDistance:
    """Which way of counting on from a start number predicts the answers to unusual rows."""
    task, _ = task_of_counter(counter)
    if task.start_tokens != 1:
        raise NotApplicable(f"rows of {task.name} have no start number")
    if not isinstance(counter, Transformer):
        raise NotApplicable(f"{type(counter).__name__} ignores position ids: nothing but tokens can be counted")
    generator = torch.Generator().manual_seed(seed)
    lengths = {TRAINED: task.usual_length, BEYOND: (task.train_length + task.ood_length) // 2}
    outcomes: list[Added] = []
    right: dict[str, float] = {}
    hits: dict[str, _Hits] = {}
    for name, counted in lengths.items():
        trial = _Trial(counter, task, counted, rows, generator)
        right[name] = float(trial.right[:, 1:].double().mean())
        if right[name] < LEAST_RIGHT:
            continue
        added, hits[name] = trial.moves(name, generator)
        outcomes += added
        if len(task.starts(counted)) > 1:
            outcomes += trial.swaps(name, generator)
    if right[TRAINED] < LEAST_RIGHT:
        raise NotApplicable(f"it answers {right[TRAINED]:.0%} right: there is little that could move")
    scores = hits[TRAINED].scores()
    best = max(scores, key=lambda way: scores[way].value)
    return StartDistance(task.name, right, tuple(outcomes), scores, hits[TRAINED].leads(best, seed))


@dataclass(frozen=True)
class _Hits:
    """How many telling tokens of each row each way predicts, by kind of row."""

    by_way: dict[str, Float[np.ndarray, "kind row"]]
    telling: Float[np.ndarray, "kind row"]

    def scores(self) -> dict[str, Interval]:
        """The share that each way predicts, every kind of row counting alike; intervals are those of so many rows."""
        n_rows = np.array([float(self.telling.shape[1])])
        scores = {}
        for way, hits in self.by_way.items():
            value = float((hits.sum(1) / self.telling.sum(1)).mean())
            low, high = wilson(value * n_rows, n_rows)
            scores[way] = Interval(value, float(low[0]), float(high[0]))
        return scores

    def leads(self, best: str, seed: int) -> dict[str, Interval]:
        """How much more the best way predicts than each other way, with bootstrap intervals over rows."""
        return {
            way: self._mean_difference(self.by_way[best] - hits, seed)
            for way, hits in self.by_way.items()
            if way != best
        }

    def _mean_difference(self, more: Float[np.ndarray, "kind row"], seed: int) -> Interval:
        def mean_over_kinds(weights: Float[np.ndarray, "sample row"]) -> Float[np.ndarray, "one sample"]:
            return (more @ weights.T / (self.telling @ weights.T)).mean(0, keepdims=True)

        (interval,) = bootstrap(mean_over_kinds, np.ones(more.shape[1]), seed)
        return interval


class _Trial:
    """Rows of one length, and a counter's answers to them and to unusual versions of them."""

    def __init__(self, counter: Transformer, task: Task, counted: int, rows: int, generator: torch.Generator) -> None:
        room = counter.cfg.max_position - counted - task.prefix - 2 * LARGEST_MOVE
        if counted <= WATCHED_FROM or room < 0:
            raise NotApplicable(f"rows of {counted} tokens are too short, or leave no room to move position ids")
        self.counter, self.task = counter, task
        self.token_ids = counted_rows(task, counted, rows, generator)
        self.place = torch.arange(self.token_ids.shape[1])
        shifts = LARGEST_MOVE + torch.randint(room + 1, (rows, 1), generator=generator)
        self.pids = shifts + self.place
        self.right = self._answers(self.token_ids, self.pids) == self._labels(self.place.expand_as(self.pids))

    def moves(self, lengths: str, generator: torch.Generator) -> tuple[list[Added], _Hits]:
        """Every kind of unusual row, and how often each way predicts its answers."""
        steps = torch.randint(1, LARGEST_MOVE + 1, (len(self.pids), 1), generator=generator)
        signs = torch.where(torch.rand(steps.shape, generator=generator) < 0.5, 1, -1)
        gappy = (self.place < LEFT_OUT_FROM) | (self.place >= LEFT_OUT_FROM + int(steps[0]))
        everything = torch.ones_like(gappy)
        own = (self.place >= WATCHED_FROM) & (self.place % 3 == 0)
        kinds: Mapping[str, tuple[Ids, Bool[Tensor, "whole_row"]]] = {
            "start moved": (self.pids + steps * signs * (self.place == 0), everything),
            "symbol moved": (self.pids + steps * signs * (self.place == 1), everything),
            "own moved": (self.pids + steps * signs * own, everything),
            "gap": (self.pids + steps * (self.place >= GAP_AT), everything),
            "tokens left out": (self.pids, gappy),
        }
        outcomes, n_telling = [], []
        hits: dict[str, list[Tensor]] = {way: [] for way in WAYS}
        for kind, (pids, present) in kinds.items():
            answers = self._answers(self.token_ids[:, present], pids[:, present])
            predicted, telling = self._predictions(pids[:, present], present)
            n_telling.append(telling.sum(1))
            for way, expected in predicted.items():
                outcomes.append(Added(kind, lengths, way, *self._shares(answers, expected, telling), way, lengths))
                hits[way].append(((answers == expected) & telling).sum(1))
        by_way = {way: torch.stack(counts).double().numpy() for way, counts in hits.items()}
        return outcomes, _Hits(by_way, torch.stack(n_telling).double().numpy())

    def _predictions(
        self, pids: Ids, present: Bool[Tensor, "whole_row"]
    ) -> tuple[dict[str, Ids], Bool[Tensor, "row pos"]]:
        """What each way says of the answers of the tokens that are present, and which answers tell the ways apart."""
        place = self.place[present]
        predicted = {way: self._labels(distance(pids)) for way, distance in WAYS.items()}
        stacked = torch.stack(list(predicted.values()))
        telling = (stacked != stacked[0]).any(0) & (stacked != NOT_SCORED).all(0)
        return predicted, telling & self.right[:, present] & (place >= WATCHED_FROM)

    def swaps(self, lengths: str, generator: torch.Generator) -> list[Added]:
        """The start token's key or value from a row with another start number, layer by layer."""
        starts = self.task.starts(self.token_ids.shape[1] - 1)
        other = self.token_ids.clone()
        step = torch.randint(1, len(starts), (len(other),), generator=generator)
        lowest = int(self.task.vocab.id(str(starts[0])))
        other[:, 0] = lowest + (other[:, 0] - lowest + step) % len(starts)
        names = [hook_name(kind, layer) for layer in range(self.counter.cfg.n_layers) for kind in ("k", "v")]
        device = self.counter.device
        with evaluating(self.counter):
            _, cache = self.counter.run_with_cache(other.to(device), self.pids.to(device), names_filter=names)
        expected = self._labels(self.place.expand_as(self.pids), other[:, :1])
        telling = self.right & (expected != NOT_SCORED) & (self.place >= WATCHED_FROM)
        outcomes = []
        for layer in range(self.counter.cfg.n_layers):
            for kind, word in (("k", "key"), ("v", "value")):
                name = hook_name(kind, layer)
                answers = self._answers(self.token_ids, self.pids, ((name, _take_first(cache[name])),))
                shares = self._shares(answers, expected, telling)
                done = f"{SWAPPED}{word} at layer {layer}"
                outcomes.append(Added(done, lengths, "new start", *shares, "", lengths))
        return outcomes

    def _shares(self, answers: Ids, expected: Ids, telling: Bool[Tensor, "row pos"]) -> tuple[Interval, Interval]:
        """How often answers are as expected, and as expected of another row."""
        independent = int(telling.any(1).sum())
        hits = (answers == expected)[telling], (answers == expected.roll(1, 0))[telling]
        own, others = (share_interval(hit, independent) for hit in hits)
        return own, others

    def _labels(self, distances: Ids, start: Int[Tensor, "row 1"] | None = None) -> Ids:
        """The answers at so many tokens after the start number; NOT_SCORED where there is no number word for it."""
        start = self.token_ids[:, :1] if start is None else start
        longest = self.counter.cfg.max_position + LARGEST_MOVE
        rows = torch.cat([start, self.token_ids[:, 1:2].expand(-1, longest)], 1)
        labels = self.task.label(rows).gather(1, distances.clamp(0, longest))
        return labels.where((distances >= 1) & (distances <= longest), NOT_SCORED)

    def _answers(self, token_ids: Ids, pids: Ids, hooks: Hooks = ()) -> Ids:
        device = self.counter.device
        with evaluating(self.counter), self.counter.hooks(fwd_hooks=list(hooks)):
            return self.counter(token_ids.to(device), pids.to(device)).argmax(-1).cpu()


def _take_first(source: Tensor) -> Callable[..., Tensor]:
    """A hook that takes the first token's activation from elsewhere."""

    def edit(value: Tensor, hook: object) -> Tensor:
        edited = value.clone()
        edited[:, 0] = source[:, 0]
        return edited

    return edit
