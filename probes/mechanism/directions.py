"""The directions of a place along which activations follow one variable when the others of the algorithm are held.

They are the effects of an additive fit to all variables. A displacement is split between the variables' directions,
which need not be at right angles, and only the share of one of them is made.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from models.transformer import Transformer
from probes.mechanism.additive_fit import additive_fit
from probes.mechanism.hypotheses import Hypothesis, Query
from probes.mechanism.interchange import Basis, Projector, span
from probes.mechanism.places import Place
from probes.mechanism.swap_pairs import draw_whole_rows, watched
from training.evaluate import evaluating
from training.tasks import Task

DEGREE = 3  # of the curve along which activations follow a magnitude


def variable_directions(
    counter: Transformer,
    task: Task,
    hypotheses: Mapping[str, Hypothesis],
    places: Sequence[Place],
    rows: int,
    seed: int,
) -> dict[Place, Projector]:
    """For each place, the projector on the directions of its variable, fitted to the tokens of rows drawn for this."""
    subspaces = [place for place in places if place.within is not None]
    if not subspaces:
        return {}
    whole_rows = draw_whole_rows(
        task, counter.cfg.max_position, rows, torch.Generator().manual_seed(seed), torch.device(counter.device)
    )
    row, column = watched(task, whole_rows).nonzero(as_tuple=True)
    query = Query.of(whole_rows, row, column)
    names = sorted({name for place in subspaces for name in place.hooks})
    with evaluating(counter):
        _, cache = counter.run_with_cache(whole_rows.token_ids, whole_rows.position_ids, names_filter=names)
    activations = torch.cat([cache[name][row, column] for name in names], 1).double()
    widths = [cache[name].shape[-1] for name in names]
    along: dict[Place, Projector] = {}
    for title, hypothesis in hypotheses.items():
        effects = {
            variable: dict(zip(names, effect.split(widths, 1), strict=True))
            for variable, effect in _effects(hypothesis, query, activations).items()
        }
        for place in subspaces:
            assert place.within is not None
            if place.within[0] != title:
                continue
            bases = {variable: span(by_hook[place.hooks[0]]) for variable, by_hook in effects.items()}
            along[place] = _projector(bases, place.within[1])
    return along


def _projector(bases: Mapping[str, Basis], variable: str) -> Projector:
    """The matrix that takes a displacement to the part along one variable's directions: `step @ projector`."""
    ranks = [basis.shape[1] for basis in bases.values()]
    coordinates = torch.linalg.pinv(torch.cat(list(bases.values()), 1)).split(ranks)
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
    parts = additive_fit(designs, activations[linked] - activations[linked].mean(0))
    effects = {name: designs[name] @ part for name, part in parts.items()}
    return {name: effect - effect.mean(0) for name, effect in effects.items()}


def _linked(levels: Sequence[Int[Tensor, "query"]], n_queries: int) -> Bool[Tensor, "query"]:
    """The largest set of tokens with linked values: values that always occur together cannot be told apart."""
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
    """One-hot columns, one per value."""
    return torch.nn.functional.one_hot(values.unique(return_inverse=True)[1]).double()


def _curve(values: Float[Tensor, "query"]) -> Float[Tensor, "query power"]:
    """Orthogonal polynomials of the value, up to DEGREE."""
    scaled = (values.double() - values.double().mean()) / values.double().std().clamp(min=1e-9)
    powers = torch.stack([scaled**power for power in range(1, DEGREE + 1)], 1)
    return torch.linalg.qr(powers - powers.mean(0))[0] * len(values) ** 0.5
