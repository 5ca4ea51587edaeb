"""Stated algorithms of counting, as small causal models: variables, what each is at a token, and the outcome.

A hypothesis says what a counter computes at a token (the *query*) of a row, from these facts:

    own        PID of the token                  distance   tokens before it in the row
    first      PID of the row's first token      count      earlier tokens of its kind

An interchange sets one variable to its value at a token of another row; the outcome that the algorithm then gives is
what the counter should answer, if it works that way. Some hypotheses also say what makes no difference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.counter import Counter
from models.transformer import Transformer
from probes.result import NotApplicable
from training.batches import Batch
from training.tasks import NOT_SCORED, Task

Values = Float[Tensor, "query"]
WHOLE = 0.1  # how near to a whole number an outcome must be to say anything


@dataclass(frozen=True)
class Query:
    """What an algorithm may know of one token of each row."""

    own: Values
    first: Values
    distance: Values
    count: Values

    @classmethod
    def of(cls, rows: Batch, row: Int[Tensor, "query"], column: Int[Tensor, "query"]) -> "Query":
        """What is known of these tokens of rows without padding."""
        own, first = rows.position_ids[row, column], rows.position_ids[row, 0]
        alike = rows.token_ids[row] == rows.token_ids[row, column][:, None]
        earlier = torch.arange(alike.shape[1], device=alike.device) < column[:, None]
        return cls(own.float(), first.float(), column.float(), (alike & earlier).sum(1).float())


@dataclass(frozen=True)
class Variable:
    """A variable of an algorithm, and where in a counter its value could be."""

    name: str
    meaning: str
    value: Callable[[Query], Values]
    # Where to swap it: at the `token` itself, at the `first` token, or in the `context`, which is every token.
    where: tuple[str, ...] = ("token",)
    is_outcome: bool = False  # it is what the token answers, so that only attention's output may hold it
    # Whether only activations that are swapped whole may hold it. Where own and first are both, own and their mean are
    # too, along other directions; only what brings the one without the other tells which it is.
    whole: bool = False
    smooth: bool = False  # a magnitude, that activations follow along a curve rather than value by value
    ignored: bool = False  # the algorithm says that a swap changes nothing, wherever it is made


@dataclass(frozen=True)
class Hypothesis:
    """An algorithm."""

    equation: str
    summary: str
    variables: tuple[Variable, ...]
    outcome: Callable[[Mapping[str, Values]], Values]  # distance or count, from the variables

    def values(self, query: Query) -> dict[str, Values]:
        """Every variable at these tokens."""
        return {variable.name: variable.value(query) for variable in self.variables}

    def swapped(self, variable: Variable, base: Query, source: Query) -> Values:
        """The outcome at the base's tokens with one variable from the source's."""
        values = self.values(base)
        if not variable.ignored:
            values[variable.name] = variable.value(source)
        return self.outcome(values)


OWN = Variable("own", "PID of the token", lambda query: query.own)

MODULAR: dict[str, Hypothesis] = {
    "first_position": Hypothesis(
        "(own - beginning) mod m",
        "the PID at which the row begins is subtracted from the token's own, modulo m (the paper's equation; which "
        "tokens tell where it begins is another question: see the probe `anchor`)",
        (
            OWN,
            Variable(
                "first",
                "PID at which the row begins",
                lambda query: query.first,
                ("token", "first", "context"),
                whole=True,
            ),
        ),
        lambda values: values["own"] - values["first"],
    ),
    "mean_position": Hypothesis(
        "2 (own - mean) mod m",
        "the mean PID of the tokens so far is subtracted from the token's own, twice",
        (
            OWN,
            Variable(
                "mean",
                "mean PID of the tokens so far",
                lambda query: query.first + query.distance / 2,
                ("token", "context"),
                whole=True,
            ),
        ),
        lambda values: 2 * (values["own"] - values["mean"]),
    ),
    "absolute_position": Hypothesis(
        "own mod m",
        "the token's own PID modulo m, with no correction for where the row begins",
        (OWN,),
        lambda values: values["own"],
    ),
    "distance": Hypothesis(
        "distance mod m",
        "attention alone brings how many tokens came before, whatever the PIDs are",
        (
            Variable("distance", "tokens before this one", lambda query: query.distance, is_outcome=True),
            Variable("shift", "PID of the row's first token", lambda query: query.first, ("context",), ignored=True),
        ),
        lambda values: values["distance"],
    ),
}
SELECTIVE: dict[str, Hypothesis] = {
    "shares": Hypothesis(
        "(k/n) / (1/n) - 1",
        "attention brings 1/n and k/n, for n tokens so far of which k are of this kind, and their ratio is taken",
        (
            Variable("inverse", "1 / tokens so far", lambda query: 1 / (query.distance + 1), smooth=True),
            Variable("share", "share of tokens of this kind", lambda query: (query.count + 1) / (query.distance + 1)),
        ),
        lambda values: values["share"] / values["inverse"] - 1,
    ),
    "matches": Hypothesis(
        "k - 1",
        "attention brings the count itself, such as 1 / k on an anchor, whatever the number of tokens is",
        (
            Variable("count", "earlier tokens of this kind", lambda query: query.count, is_outcome=True),
            Variable("inverse", "1 / tokens so far", lambda query: 1 / (query.distance + 1), smooth=True, ignored=True),
        ),
        lambda values: values["count"],
    ),
}


HYPOTHESES = {"modular": MODULAR, "selective": SELECTIVE}  # by the form of counting


def hypotheses_of(counter: Counter, task: Task) -> dict[str, Hypothesis]:
    """The algorithms that a counter of this task might have."""
    if not isinstance(counter, Transformer) or not counter.cfg.causal:
        raise NotApplicable("these hypotheses are about causal attention")
    if task.form not in HYPOTHESES:
        stated = " and ".join(HYPOTHESES)
        raise NotApplicable(f"no mechanism is stated for {task.name}: there are some for {stated} counting")
    return HYPOTHESES[task.form]


def answer_ids(task: Task, outcome: Values) -> Int[Tensor, "query"]:
    """The token that says this outcome; NOT_SCORED where it is no whole number, or no answer of the task.

    >>> import torch
    >>> from training.tasks import make_task
    >>> task = make_task("mod3")
    >>> task.vocab.decode(answer_ids(task, torch.tensor([0.0, 4.0, -1.0])).tolist())
    ['1', '2', '3']
    """
    whole = outcome.round()
    before = task.prefix if task.period else 0  # of modular counting the outcome is a distance, and bos is part of it
    answers = task.answer_ids(whole.long() - before)
    return answers.where((outcome - whole).abs() < WHOLE, NOT_SCORED)
