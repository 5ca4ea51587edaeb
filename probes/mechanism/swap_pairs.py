"""Pairs of tokens of two rows, between which variables are swapped, and what a hypothesis predicts for each.

A prediction of modular counting implies a distance from the row's beginning. It may be one that occurred in training,
one beyond, or none at all (below 1): what a counter does there is scored apart. *Near* pairs have shifts so close that
most implied distances are trained ones, *far* pairs have any shifts, *longer* ones are of rows longer than in training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.transformer import Transformer
from probes.inputs.counterfactual_rows import counted_rows, n_shifts, shifted_rows
from probes.mechanism.hypotheses import Hypothesis, Query, Values, Variable, answer_ids
from probes.mechanism.places import Place
from training.batches import Batch
from training.tasks import NOT_SCORED, Task

PairLengths = Literal["near", "far", "longer"]
TRAINED, BELOW, BEYOND = "trained", "below 1", "beyond"
ROUNDS = 3  # of a modular counter's base that rows count
CANDIDATES = 24  # pairs of tokens per pair of rows, of which the most telling is kept
NEAR = 20  # places between the shifts of two rows
KIND = 0  # of tokens, where kinds are counted apart


@dataclass(frozen=True)
class Prediction:
    """What a hypothesis says of a swap."""

    answers: Int[Tensor, "row"]
    tells: Bool[Tensor, "row"]  # where the prediction is neither row's own answer, so that it tells something
    implied: dict[str, Bool[Tensor, "row"]]  # by the distance that the swap implies

    def telling(self, within: str) -> Bool[Tensor, "row"]:
        """The pairs that tell something, of one range of implied distances."""
        return self.tells & self.implied[within]


@dataclass(frozen=True)
class SwapPairs:
    """Tokens whose answers are watched, each with a token of another row from which variables are taken."""

    base: Batch
    source: Batch
    column: Int[Tensor, "row"]
    source_column: Int[Tensor, "row"]

    @property
    def row(self) -> Int[Tensor, "row"]:
        return torch.arange(len(self.column), device=self.column.device)

    @property
    def query(self) -> Query:
        """The facts about the tokens that answer."""
        return Query.of(self.base, self.row, self.column)

    @property
    def labels(self) -> Int[Tensor, "row"]:
        """The right answers there."""
        return self.base.label_ids[self.row, self.column]

    def taken_from(self, at: str) -> Int[Tensor, "row"]:
        """The source's column: where the whole row is swapped, columns stay what they are."""
        return self.column if at in ("first", "context") else self.source_column

    def source_query(self, at: str) -> Query:
        """The facts about the tokens from which variables are taken."""
        return Query.of(self.source, self.row, self.taken_from(at))

    def predict(self, task: Task, hypothesis: Hypothesis, variable: Variable, place: Place | None) -> Prediction:
        """The answers that a hypothesis predicts for a swap, and where that tells something.

        It tells nothing where the prediction is the base's own answer or, unless it is the outcome that is swapped, the
        source's: those need no mechanism. Where nothing should change, it tells something if the variable did.
        """
        at = "token" if place is None else place.at
        source = self.source_query(at)
        outcome = hypothesis.swapped(variable, self.query, source)
        answers = answer_ids(task, outcome)
        if variable.ignored:
            tells = variable.value(self.query) != variable.value(source)
        else:
            tells = (answers != NOT_SCORED) & (answers != self.labels)
            if not variable.is_outcome:
                tells &= answers != self.source.label_ids[self.row, self.taken_from(at)]
        if place is not None and place.at == "window" and place.n_queries is not None:
            tells &= torch.minimum(self.column, self.source_column) >= place.n_queries
        return Prediction(answers, tells, implied_ranges(task, outcome))


def implied_ranges(task: Task, outcome: Values) -> dict[str, Bool[Tensor, "row"]]:
    """Which outcomes are distances of training; where kinds are counted apart, every outcome that is an answer is."""
    counted = outcome - task.prefix + 1
    below, beyond = counted < 1, counted > task.train_length
    if not task.period:
        below = beyond = torch.zeros_like(below)
    return {TRAINED: ~(below | beyond), BELOW: below, BEYOND: beyond}


def draw_whole_rows(
    task: Task,
    max_position: int,
    rows: int,
    generator: torch.Generator,
    device: torch.device,
    counted: int | None = None,
    near: Int[Tensor, "row"] | None = None,
) -> Batch:
    """Rows with shifts as in training, of `counted` tokens; by default of three rounds of modular counting.

    With `near`, which has a shift for each row, shifts are at most NEAR places from it.
    """
    usual = min(task.train_length, ROUNDS * (task.period or task.train_length))
    token_ids = counted_rows(task, counted or usual, rows, generator)
    if len(task.kinds) > 1:
        token_ids = _with_kind(token_ids)
    room = n_shifts(task, token_ids.shape[1], max_position)
    if near is None:
        shifts = torch.randint(room, (rows,), generator=generator)
    else:
        shifts = (near + torch.randint(-NEAR, NEAR + 1, (rows,), generator=generator)).clamp(0, room - 1)
    return shifted_rows(task, token_ids, shifts).to(device)


def _with_kind(token_ids: Int[Tensor, "row pos"]) -> Int[Tensor, "row pos"]:
    """The same rows, in each of which the kind of the last token has changed names with the kind that is asked for."""
    last = token_ids[:, -1:]
    return token_ids.where(token_ids != KIND, last).where(token_ids != last, KIND)


def draw_pairs(
    counter: Transformer,
    task: Task,
    hypotheses: Mapping[str, Hypothesis],
    n_pairs: int,
    seed: int,
    rows: PairLengths = "near",
    counted: int | None = None,
) -> SwapPairs:
    """Pairs of tokens in rows of `counted` tokens: the candidates about which most hypotheses say something."""
    generator, device = torch.Generator().manual_seed(seed), torch.device(counter.device)
    first_column = task.prefix + 1
    if rows == "longer":
        counted = min((task.train_length + task.ood_length) // 2, counter.cfg.max_position - task.prefix)
        first_column = min(task.train_length, counted - 1) + task.prefix
    base = draw_whole_rows(task, counter.cfg.max_position, n_pairs, generator, device, counted)
    near = base.position_ids[:, 0].cpu() if rows == "near" else None
    source = draw_whole_rows(task, counter.cfg.max_position, n_pairs, generator, device, counted, near)
    columns = torch.stack([_columns(task, batch, first_column, generator) for batch in (base, source)])
    within = TRAINED if rows == "near" else BEYOND
    scores = []
    for column, source_column in zip(*columns, strict=True):
        pairs = SwapPairs(base, source, column, source_column)
        predictions = [
            pairs.predict(task, hypothesis, variable, None)
            for hypothesis in hypotheses.values()
            for variable in hypothesis.variables
        ]
        points = [prediction.tells.long() + prediction.telling(within).long() for prediction in predictions]
        scores.append(torch.stack(points).sum(0))
    best = torch.stack(scores).argmax(0)
    return SwapPairs(base, source, *columns.gather(1, best.expand(2, 1, -1))[:, 0])


def _columns(task: Task, rows: Batch, first_column: int, generator: torch.Generator) -> Int[Tensor, "candidate row"]:
    """Tokens of each row to choose from, from a column on if the row has any there."""
    allowed = watched(task, rows)
    later = allowed & (torch.arange(allowed.shape[1], device=allowed.device) >= first_column)
    weight = torch.where(later.any(1, keepdim=True), later, allowed).double().cpu()
    return torch.multinomial(weight, CANDIDATES, replacement=True, generator=generator).T.to(rows.token_ids.device)


def watched(task: Task, rows: Batch) -> Bool[Tensor, "row pos"]:
    """The tokens whose answers are watched: not a row's first and, where kinds are counted apart, of one kind.

    What attention brings of a kind lies in that kind's own direction.
    """
    column = torch.arange(rows.token_ids.shape[1], device=rows.token_ids.device)
    later = (column > task.prefix).expand(rows.token_ids.shape)
    return later & (rows.token_ids == KIND) if len(task.kinds) > 1 else later
