"""Interchange interventions: a counter runs on one row with a variable's place set as in another row.

A *place* is some activations of a layer, at the token that answers, at the row's first token, or at every token of the
row (*context*: what the token attends to). They are swapped whole, or within the directions along which they follow
one variable when the others of the algorithm are held: the effects of an additive fit to all of them. A displacement
is split between the variables' directions, which need not be at right angles, and only one's share is made.

Geiger et al. (2021) have the idea; TransformerLens' distributed alignment search learns the directions instead
(`probes.mechanism.alignment_search`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from transformer_lens.tools.analysis.interchange import random_basis

from models.hooks import hook_name
from models.transformer import Transformer
from probes.inputs.counterfactual_rows import counted_rows, n_shifts, shifted_rows
from probes.mechanism.hypotheses import Hypothesis, Query, Variable, answer_ids
from training.batches import Batch
from training.evaluate import evaluating
from training.tasks import NOT_SCORED, Task

Basis = Float[Tensor, "d rank"]
Projector = Float[Tensor, "d d"]  # takes a displacement to what of it belongs to one variable
Move = Callable[[Tensor, Tensor], Tensor]  # base and source activations to new base activations

TOKEN_KINDS = ("resid_pre", "q", "attn_out", "z", "resid_mid", "mlp_out", "resid_post")
SUBSPACE_KINDS = ("attn_out", "resid_mid", "resid_post")
FROM_ATTENTION = ("attn_out", "z")
CONTEXTS = (("k", "v"), ("k",), ("v",))
HOLDS = 0.5  # of interchanges: what a claim must surely exceed to be called an explanation
ROUNDS = 3  # of a modular counter's base that rows count
CANDIDATES = 64  # pairs of tokens of which one is taken
EXPLAINED = 0.999  # of a variable's effects, within its directions
MAX_RANK = 9  # of those directions: what ten values of a variable span
DEGREE = 3  # of the curve along which activations follow a magnitude
RIDGE = 1e-6
KIND = 0  # of tokens, where kinds are counted apart


@dataclass(frozen=True)
class Place:
    """Where activations are swapped."""

    kinds: tuple[str, ...]
    layer: int
    at: str = "token"  # or `first`, or `context`
    head: int | None = None
    within: tuple[str, str] | None = None  # only along the directions of this hypothesis' variable

    @property
    def label(self) -> str:
        """How tables and figures call it.

        >>> Place(("k", "v"), 1, "context").label, Place(("z",), 0, head=2).label
        ('L1 k+v of all tokens', 'L0 H2 z')
        >>> Place(("resid_mid",), 0, within=("mean_position", "own")).label
        'L0 resid_mid along own'
        """
        head = f" H{self.head}" if self.head is not None else ""
        where = {"token": "", "first": " of the first token", "context": " of all tokens"}[self.at]
        within = f" along {self.within[1]}" if self.within else ""
        return f"L{self.layer}{head} {'+'.join(self.kinds)}{where}{within}"

    @property
    def hooks(self) -> list[str]:
        """The hook points at which it is swapped."""
        return [hook_name(kind, self.layer) for kind in self.kinds]


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
        """The tokens that answer."""
        return Query.of(self.base, self.row, self.column)

    @property
    def labels(self) -> Int[Tensor, "row"]:
        """What is right there."""
        return self.base.label_ids[self.row, self.column]

    def taken_from(self, at: str) -> Int[Tensor, "row"]:
        """The source's column: where all tokens are swapped at once, columns stay what they are."""
        return self.source_column if at == "token" else self.column

    def expected(
        self, task: Task, hypothesis: Hypothesis, variable: Variable, at: str
    ) -> tuple[Int[Tensor, "row"], Tensor]:
        """The answers that a hypothesis predicts for a swap, and where that tells something.

        It tells nothing where the prediction is the base's own answer or, unless it is the outcome that is swapped, the
        source's: those need no mechanism. Where nothing should change, it tells something if the variable did.
        """
        column = self.taken_from(at)
        source = Query.of(self.source, self.row, column)
        predicted = answer_ids(task, hypothesis.swapped(variable, self.query, source))
        if variable.ignored:
            return predicted, variable.value(self.query) != variable.value(source)
        tells = (predicted != NOT_SCORED) & (predicted != self.labels)
        if not variable.is_outcome:
            tells &= predicted != self.source.label_ids[self.row, column]
        return predicted, tells


def draw_whole_rows(
    task: Task, max_position: int, rows: int, generator: torch.Generator, device: torch.device
) -> Batch:
    """Rows of a length and with shifts as in training; of modular counting, no more than three rounds."""
    counted = min(task.train_length, ROUNDS * (task.period or task.train_length))
    token_ids = counted_rows(task, counted, rows, generator)
    if len(task.kinds) > 1:
        token_ids = _with_kind(token_ids)
    shifts = torch.randint(n_shifts(task, token_ids.shape[1], max_position), (rows,), generator=generator)
    return shifted_rows(task, token_ids, shifts).to(device)


def _with_kind(token_ids: Int[Tensor, "row pos"]) -> Int[Tensor, "row pos"]:
    """The same rows, in each of which the kind of the last token has changed names with the kind that is asked for."""
    last = token_ids[:, -1:]
    return token_ids.where(token_ids != KIND, last).where(token_ids != last, KIND)


def draw_pairs(
    counter: Transformer, task: Task, hypotheses: Mapping[str, Hypothesis], n_pairs: int, seed: int
) -> SwapPairs:
    """Pairs of tokens, of many candidates those about which most hypotheses say something."""
    generator = torch.Generator().manual_seed(seed)
    base, source = (
        draw_whole_rows(task, counter.cfg.max_position, n_pairs, generator, counter.device) for _ in ("base", "source")
    )
    columns = torch.stack([_columns(task, rows, generator) for rows in (base, source)])
    told = []
    for column, source_column in zip(*columns, strict=True):
        pairs = SwapPairs(base, source, column, source_column)
        says = [
            pairs.expected(task, hypothesis, variable, "token")[1].long()
            for hypothesis in hypotheses.values()
            for variable in hypothesis.variables
        ]
        told.append(torch.stack(says).sum(0))
    best = torch.stack(told).argmax(0)
    return SwapPairs(base, source, *columns.gather(1, best.expand(2, 1, -1))[:, 0])


def _columns(task: Task, rows: Batch, generator: torch.Generator) -> Int[Tensor, "candidate row"]:
    """Tokens of each row to choose from."""
    weight = asked(task, rows).double().cpu()
    return torch.multinomial(weight, CANDIDATES, replacement=True, generator=generator).T.to(rows.token_ids.device)


def asked(task: Task, rows: Batch) -> Bool[Tensor, "row pos"]:
    """The tokens whose answers are watched: not a row's first and, where kinds are counted apart, of one kind.

    What attention brings of a kind lies in that kind's own direction.
    """
    column = torch.arange(rows.token_ids.shape[1], device=rows.token_ids.device)
    wanted = (column > task.prefix).expand(rows.token_ids.shape)
    if len(task.kinds) > 1:
        wanted = wanted & (rows.token_ids == KIND)
    return wanted


def places_of(counter: Transformer, hypotheses: Mapping[str, Hypothesis]) -> list[Place]:
    """Everywhere that some variable could be: the last layer's outputs are left out, for there is the answer."""
    renamed = {"q": "rot_q", "k": "rot_k"} if hook_name("rot_q", 0) in counter.hook_dict else {}
    within = [(name, variable.name) for name, one in hypotheses.items() for variable in one.variables]
    places = []
    for layer in range(counter.cfg.n_layers):
        last = layer == counter.cfg.n_layers - 1
        kinds = [kind for kind in TOKEN_KINDS if not (last and kind in ("mlp_out", "resid_post"))]
        for kind in kinds:
            heads: Iterable[int | None] = range(counter.cfg.n_heads) if kind == "z" else [None]
            places += [Place((renamed.get(kind, kind),), layer, head=head) for head in heads]
            places += [Place((kind,), layer, within=one) for one in within if kind in SUBSPACE_KINDS]
        places.append(Place(("resid_pre",), layer, "first"))
        places += [Place(tuple(renamed.get(kind, kind) for kind in both), layer, "context") for both in CONTEXTS]
    return places


def may_hold(place: Place, hypothesis: str, variable: Variable) -> bool:
    """Whether a hypothesis lets this place hold this variable."""
    if place.at not in variable.where or place.within not in (None, (hypothesis, variable.name)):
        return False
    if place.within is not None and variable.whole:
        return False
    if variable.ignored:  # swapping a whole token would also swap what is not ignored
        return place.at == "context" or place.within is not None
    return not variable.is_outcome or place.kinds[0] in FROM_ATTENTION


class Swapper:
    """Runs a counter's pairs with places swapped. Hooks are there only during a call."""

    def __init__(
        self, counter: Transformer, pairs: SwapPairs, places: Sequence[Place], along: Mapping[Place, Projector]
    ):
        self.counter, self.pairs, self.along = counter, pairs, along
        names = sorted({name for place in places for name in place.hooks})
        with evaluating(counter):
            source = pairs.source
            _, self.source = counter.run_with_cache(source.token_ids, source.position_ids, names_filter=names)

    def answers(self, place: Place | None = None, placebo: int | None = None) -> Int[Tensor, "row"]:
        """The counter's answers with a place swapped, or as they are without one.

        With a placebo (a seed) activations move as far, but in random directions.
        """
        pairs = self.pairs
        hooks = []
        if place is not None:
            move = self._move(place, placebo)
            hooks = [(name, self._edit(place, name, move)) for name in place.hooks]
        with evaluating(self.counter):
            logits = self.counter.run_with_hooks(pairs.base.token_ids, pairs.base.position_ids, fwd_hooks=hooks)
        return logits[pairs.row, pairs.column].argmax(-1)

    def _move(self, place: Place, placebo: int | None) -> Move:
        def move(base: Tensor, source: Tensor) -> Tensor:
            if place.within is None and placebo is None:
                return source
            step = source - base
            if place.within is not None:
                step = step @ self.along[place].to(base)
            d = base.shape[-1]
            return base + (step if placebo is None else step @ random_basis(d, d, placebo).to(base))

        return move

    def _edit(self, place: Place, name: str, move: Move) -> Callable[..., Tensor]:
        row, column, taken = self.pairs.row, self.pairs.column, self.pairs.taken_from(place.at)
        donor = self.source[name]

        def edit(base: Tensor, hook: object) -> Tensor:
            if place.at == "context":
                return move(base, donor)
            new = base.clone()
            here, there = (row * 0, row * 0) if place.at == "first" else (column, taken)
            if place.head is None:
                new[row, here] = move(base[row, here], donor[row, there])
            else:
                new[row, here, place.head] = move(base[row, here, place.head], donor[row, there, place.head])
            return new

        return edit


def variable_directions(
    counter: Transformer,
    task: Task,
    hypotheses: Mapping[str, Hypothesis],
    places: Sequence[Place],
    rows: int,
    seed: int,
) -> dict[Place, Projector]:
    """What of a displacement at each place belongs to each variable, from a fit to the tokens of rows of their own."""
    sought = [place for place in places if place.within is not None]
    drawn = draw_whole_rows(
        task, counter.cfg.max_position, rows, torch.Generator().manual_seed(seed), torch.device(counter.device)
    )
    row, column = asked(task, drawn).nonzero(as_tuple=True)
    query = Query.of(drawn, row, column)
    names = sorted({name for place in sought for name in place.hooks})
    with evaluating(counter):
        _, cache = counter.run_with_cache(drawn.token_ids, drawn.position_ids, names_filter=names)
    activations = torch.cat([cache[name][row, column] for name in names], 1).double()
    widths = [cache[name].shape[-1] for name in names]
    along: dict[Place, Projector] = {}
    for title, hypothesis in hypotheses.items():
        effects = {
            variable: dict(zip(names, effect.split(widths, 1), strict=True))
            for variable, effect in _effects(hypothesis, query, activations).items()
        }
        followed = [place for place in sought if place.within is not None and place.within[0] == title]
        for place in followed:
            assert place.within is not None
            bases = {variable: span(by_hook[place.hooks[0]]) for variable, by_hook in effects.items()}
            along[place] = _projector(bases, place.within[1])
    return along


def _projector(bases: Mapping[str, Basis], variable: str) -> Projector:
    """Splits a displacement between all variables' directions and keeps what belongs to one: `step @ projector`."""
    coordinates = torch.linalg.pinv(torch.cat(list(bases.values()), 1)).split([one.shape[1] for one in bases.values()])
    return (bases[variable] @ dict(zip(bases, coordinates, strict=True))[variable]).T


def _effects(
    hypothesis: Hypothesis, query: Query, activations: Float[Tensor, "query d"]
) -> dict[str, Float[Tensor, "linked d"]]:
    """What each variable adds to the activations at each token, when the other variables are held."""
    stepwise = [variable.value(query) for variable in hypothesis.variables if not variable.smooth]
    linked = _linked([values.unique(return_inverse=True)[1] for values in stepwise], len(activations))
    designs = {
        variable.name: _curve(variable.value(query)[linked])
        if variable.smooth
        else _steps(variable.value(query)[linked])
        for variable in hypothesis.variables
    }
    design = torch.cat(list(designs.values()), 1)
    gram = design.T @ design + RIDGE * torch.eye(design.shape[1], dtype=design.dtype, device=design.device)
    centred = activations[linked] - activations[linked].mean(0)
    parts = torch.linalg.solve(gram, design.T @ centred).split([one.shape[1] for one in designs.values()])
    effects = {name: one @ part for (name, one), part in zip(designs.items(), parts, strict=True)}
    return {name: effect - effect.mean(0) for name, effect in effects.items()}


def _linked(levels: Sequence[Int[Tensor, "query"]], n_queries: int) -> Bool[Tensor, "query"]:
    """The tokens whose values are linked by other tokens: of values seen only together nobody knows which matters."""
    if len(levels) < 2:
        return torch.ones(n_queries, dtype=torch.bool)
    first, *others = (level.cpu().numpy() for level in levels)
    sizes = [int(level.max()) + 1 for level in (first, *others)]
    shifted = [level + start for level, start in zip(others, np.cumsum(sizes), strict=False)]
    edges = np.concatenate([np.stack([first, level]) for level in shifted], 1)
    graph = coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(sum(sizes), sum(sizes)))
    of_query = connected_components(graph, directed=False)[1][first]
    return torch.from_numpy(of_query == np.bincount(of_query).argmax()).to(levels[0].device)


def _steps(values: Float[Tensor, "query"]) -> Float[Tensor, "query value"]:
    """A column for each value."""
    return torch.nn.functional.one_hot(values.unique(return_inverse=True)[1]).double()


def _curve(values: Float[Tensor, "query"]) -> Float[Tensor, "query power"]:
    """Powers of the value, each without what the lower ones have."""
    scaled = (values.double() - values.double().mean()) / values.double().std().clamp(min=1e-9)
    powers = torch.stack([scaled**power for power in range(1, DEGREE + 1)], 1)
    return torch.linalg.qr(powers - powers.mean(0))[0] * len(values) ** 0.5


def span(effects: Float[Tensor, "_ d"]) -> Basis:
    """Orthonormal directions that hold nearly all of the effects, and no more than ten values can span."""
    if len(effects) < effects.shape[1]:  # few effects in many directions, such as those of a state
        _, singular, across = torch.linalg.svd(effects, full_matrices=False)
        energy, directions = singular**2, across.T
    else:
        energy, directions = torch.linalg.eigh(effects.T @ effects)
        energy, directions = energy.flip(0).clamp(min=0), directions.flip(1)
    share = energy.cumsum(0) / energy.sum().clamp(min=1e-30)
    rank = min(int((share < EXPLAINED).sum()) + 1, MAX_RANK, len(energy))
    return directions[:, :rank].float().contiguous()
