"""Stated algorithms of counting, as small causal models: variables, what each is at a token, and the outcome.

A hypothesis says what a counter computes at a token (the *query*) of a row, from these facts:

    own        PID of the token                  distance   tokens before it in the row
    first      PID of the row's first token      count      earlier tokens of its kind

An interchange sets one variable to its value at a token of another row; the outcome that the algorithm then gives is
what the counter should answer, if it works that way. Some hypotheses also say what makes no difference, which tokens
tell where the row begins (`anchors`), and whether all this goes on beyond the distances of training (`reach`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.counter import Counter
from models.transformer import Transformer
from probes.mechanism.anchor_formulas import BEGINNINGS, REACHES, SINGLE_TOKENS
from probes.result import NotApplicable
from training.batches import Batch
from training.tasks import NOT_SCORED, Task

Values = Float[Tensor, "query"]
WHOLE = 0.1  # how near to a whole number an outcome must be to say anything


@dataclass(frozen=True)
class Query:
    """What an algorithm may know of the tokens that are asked, one per row."""

    own: Values
    first: Values
    distance: Values
    count: Values

    @classmethod
    def of(cls, rows: Batch, row: Int[Tensor, "query"], column: Int[Tensor, "query"]) -> "Query":
        """The facts about these tokens, of rows without padding."""
        own, first = rows.position_ids[row, column], rows.position_ids[row, 0]
        alike = rows.token_ids[row] == rows.token_ids[row, column][:, None]
        earlier = torch.arange(alike.shape[1], device=alike.device) < column[:, None]
        return cls(own.float(), first.float(), column.float(), (alike & earlier).sum(1).float())


Needs = Callable[[Transformer, Task], bool]


def _absolute(counter: Transformer, task: Task) -> bool:
    return not counter.ignores_shifts


def _own_first_token(counter: Transformer, task: Task) -> bool:
    """Whether the first token can differ from the others without their positions."""
    return task.bos or len(task.kinds) > 1


def _rotary_and_bos(counter: Transformer, task: Task) -> bool:
    return counter.scheme.rotary and task.bos


def _any(counter: Transformer, task: Task) -> bool:
    return True


@dataclass(frozen=True)
class Variable:
    """A variable of an algorithm, and where in a counter its value could be."""

    name: str
    meaning: str
    value: Callable[[Query], Values]
    # Where to swap it (`probes.mechanism.places.EDITS` says what each means).
    where: tuple[str, ...] = ("token",)
    is_outcome: bool = False  # it is what the token answers, so that only attention may bring it
    # Whether only activations that are swapped whole may hold it. A place that holds own and first also holds own and
    # their mean, along other directions; only a swap that brings one of them alone tells which it is.
    whole: bool = False
    smooth: bool = False  # a magnitude, that activations follow along a curve rather than value by value
    ignored: bool = False  # the algorithm says that a swap changes nothing, wherever it is made
    needs: Needs = _any  # where it would be ignored by construction, there is nothing to test


@dataclass(frozen=True)
class Hypothesis:
    """An algorithm, with the claims by which it can be tested."""

    equation: str
    summary: str
    variables: tuple[Variable, ...]
    outcome: Callable[[Mapping[str, Values]], Values]  # distance or count, from the variables
    swaps_of: str = ""  # another hypothesis, whose swaps it shares: it says more, such as which token is the anchor
    anchors: tuple[str, ...] = ()  # of `probes.mechanism.anchors.ANCHORS`: one of them must predict moved PIDs best
    # What it says of distances beyond training: that swaps go on to come out, that they do not, or nothing.
    reach: Literal["beyond", "trained", "unsaid"] = "unsaid"
    needs: Needs = _any  # what a counter and its task must have for this to be possible at all

    def values(self, query: Query) -> dict[str, Values]:
        """The values of every variable at these tokens."""
        return {variable.name: variable.value(query) for variable in self.variables}

    def swapped(self, variable: Variable, base: Query, source: Query) -> Values:
        """The outcome at the base's tokens with one variable from the source's."""
        values = self.values(base)
        if not variable.ignored:
            values[variable.name] = variable.value(source)
        return self.outcome(values)


OWN = Variable("own", "PID of the token", lambda query: query.own)
FIRST = Variable(
    "first", "PID at which the row begins", lambda query: query.first, ("token", "first", "context"), whole=True
)

BEGINNING = Hypothesis(
    "(own - beginning) mod m",
    "the PID at which the row begins is subtracted from the token's own, modulo m, whichever tokens tell where that is",
    (OWN, FIRST),
    lambda values: values["own"] - values["first"],
    reach="beyond",
    needs=_absolute,
)
MODULAR: dict[str, Hypothesis] = {
    "beginning": BEGINNING,
    "first_position": replace(
        BEGINNING,
        equation="(own - first) mod m",
        summary="the PID of the row's first token is subtracted from the token's own, modulo m (the paper's equation)",
        swaps_of="beginning",
        anchors=("first token",),
    ),
    "later_position": replace(
        BEGINNING,
        equation="(own - PID of token k + k - 1) mod m",
        summary="the row's beginning is told by one later token alone",
        swaps_of="beginning",
        anchors=tuple(f"token {index + 1}" for index in range(1, SINGLE_TOKENS)),
    ),
    "vote_position": replace(
        BEGINNING,
        equation="(own - vote of several tokens) mod m",
        summary="several of the first tokens tell together where the row begins",
        swaps_of="beginning",
        anchors=(
            *(f"beginning of {voters}" for voters in BEGINNINGS),
            *(f"fading beginning ({reach})" for reach in REACHES),
        ),
    ),
    "distance_table": replace(
        BEGINNING,
        equation="table[own - beginning]",
        summary="the beginning is subtracted from the token's own PID as a magnitude, and the answer is looked up: "
        "there is none for a distance that did not occur in training",
        swaps_of="beginning",
        reach="trained",
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
        anchors=("mean",),
        needs=_absolute,
    ),
    "absolute_position": Hypothesis(
        "own mod m",
        "the token's own PID modulo m, with no correction for where the row begins",
        (OWN,),
        lambda values: values["own"],
        needs=_absolute,
    ),
    "distance": Hypothesis(
        "distance mod m",
        "attention alone brings how many tokens came before, whatever the PIDs are",
        (
            Variable("distance", "tokens before this one", lambda query: query.distance, is_outcome=True),
            Variable(
                "shift",
                "PID of the row's first token",
                lambda query: query.first,
                ("context",),
                ignored=True,
                needs=_absolute,
            ),
        ),
        lambda values: values["distance"],
    ),
    "unit": Hypothesis(
        "(weight of the tokens / weight of bos) mod m",
        "attention weighs the tokens so far against bos, as n / (a + n): with bos e^x times heavier there seem to be "
        "e^x times fewer of them",
        (Variable("weight", "tokens since bos", lambda query: query.distance, ("weight",), is_outcome=True),),
        lambda values: values["weight"],
        needs=_own_first_token,
    ),
    "bos_phase": Hypothesis(
        "phase of bos mod m",
        "the score of bos turns with the distance from it, as the hand of a clock: with the key of bos turned by x "
        "places, x more are counted",
        (Variable("phase", "tokens since bos", lambda query: query.distance, ("turn",), is_outcome=True),),
        lambda values: values["phase"],
        needs=_rotary_and_bos,
    ),
    "bos_dials": Hypothesis(
        "shares of bos at the last tokens, mod m",
        "every token reads its distance off the share that its heads give bos, and the next layer asks the last "
        "tokens: with the shares of x places further on, x more are counted",
        (Variable("dials", "tokens since bos", lambda query: query.distance, ("window",), is_outcome=True),),
        lambda values: values["dials"],
        needs=_rotary_and_bos,
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
    "unit": Hypothesis(
        "weight of this kind / weight of the first token - 1",
        "attention weighs the tokens of this kind against bos, or against the first token or its kind where there is "
        "no bos: with that e^x times heavier there seem to be e^x times fewer",
        (Variable("weight", "tokens of this kind", lambda query: query.count + 1, ("weight",), is_outcome=True),),
        lambda values: values["weight"] - 1,
        needs=_own_first_token,
    ),
}


HYPOTHESES = {"modular": MODULAR, "selective": SELECTIVE}  # by the form of counting
PAPER = {"modular": ("first_position",), "selective": ("shares", "unit")}  # what the paper has, one or the other
# A shipped counter of each form that fits its training rows in another way than extrapolation would need.
ONLY_FITS = {"modular": "mod10/spe-2L", "selective": "selective/ape-2L"}


def hypotheses_of(counter: Counter, task: Task) -> dict[str, Hypothesis]:
    """The algorithms that a counter of this task might have."""
    if not isinstance(counter, Transformer) or not counter.cfg.causal:
        raise NotApplicable("these hypotheses are about causal attention")
    if task.form not in HYPOTHESES:
        stated = " and ".join(HYPOTHESES)
        raise NotApplicable(f"no mechanism is stated for {task.name}: there are some for {stated} counting")
    return {
        name: replace(
            hypothesis, variables=tuple(variable for variable in hypothesis.variables if variable.needs(counter, task))
        )
        for name, hypothesis in HYPOTHESES[task.form].items()
        if hypothesis.needs(counter, task)
    }


def papers_claim(counter: Transformer, task: Task) -> tuple[str, ...]:
    """The algorithms that the paper ascribes to such counters: ape and sine on mod 10, all on selective counting."""
    is_exception = task.period and (task.bos or counter.cfg.position not in ("ape", "sine"))
    return () if is_exception else PAPER[task.form]


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
