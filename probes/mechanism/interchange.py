"""Interchange interventions: a counter runs on one row with a variable's place set as in another row.

A *place* (`probes.mechanism.places`) is some activations of a layer, swapped whole or within the directions along which
they follow one variable (`probes.mechanism.directions`); or what attention gets from the row's first token: its weight
among the others, its key, its share.

Geiger et al. (2021) have the idea; TransformerLens' distributed alignment search learns the directions instead
(`probes.mechanism.alignment_search`).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.hooks import hook_name
from models.position_tables import rotate
from models.transformer import Transformer
from probes.mechanism.hypotheses import Variable
from probes.mechanism.places import Place
from probes.mechanism.swap_pairs import SwapPairs
from training.evaluate import evaluating

Basis = Float[Tensor, "d rank"]
Projector = Float[Tensor, "d d"]  # takes a displacement to what of it belongs to one variable
Blend = Callable[[Tensor, Tensor], Tensor]  # base and source activations to new base activations
HookEdit = Callable[..., Tensor]  # of a hook

EXPLAINED = 0.999  # of a variable's effects, within its directions
MAX_RANK = 9  # of those directions: what ten values of a variable span
HAS_PLACEBO = ("token", "first", "context", "weight", "turn")


class Swapper:
    """Runs a counter's pairs with places swapped. Hooks are there only during a call."""

    def __init__(
        self, counter: Transformer, pairs: SwapPairs, places: Sequence[Place], along: Mapping[Place, Projector]
    ):
        self.counter, self.pairs, self.along = counter, pairs, along
        # Weights and turned keys follow from the variable alone.
        names = sorted({name for place in places if place.at not in ("weight", "turn") for name in place.hooks})
        streams = [hook_name("resid_pre", layer) for layer in range(counter.cfg.n_layers)]
        with evaluating(counter):
            source, base = pairs.source, pairs.base
            _, self.source = counter.run_with_cache(source.token_ids, source.position_ids, names_filter=names)
            logits, self._base = counter.run_with_cache(base.token_ids, base.position_ids, names_filter=streams)
        self.own_answers: Int[Tensor, "row"] = logits[pairs.row, pairs.column].argmax(-1)  # with nothing swapped

    def answers(self, place: Place, variable: Variable | None = None, placebo: int | None = None) -> Int[Tensor, "row"]:
        """The counter's answers with a place swapped.

        With a placebo (a seed) activations move as far, but in random directions; and what is done to the first token
        is done to the second instead.
        """
        pairs, layer = self.pairs, place.layers[0]  # nothing changes before this layer
        hooks = [(name, self._edit(place, name, variable, placebo)) for name in place.hooks]
        with evaluating(self.counter), self.counter.hooks(fwd_hooks=hooks):
            stream = self._base[hook_name("resid_pre", layer)]
            logits = self.counter.run_from(layer, 0, stream, pairs.base.position_ids, {})
        return logits[pairs.row, pairs.column].argmax(-1)

    def _edit(self, place: Place, name: str, variable: Variable | None, placebo: int | None) -> HookEdit:
        if place.at == "window":
            return self._share_edit(place, name)
        if place.at not in ("weight", "turn"):
            return self._swap_edit(place, name, self._move(place, placebo))
        assert variable is not None
        base, source = (variable.value(query) for query in (self.pairs.query, self.pairs.source_query(place.at)))
        key = 0 if placebo is None else 1
        if place.at == "turn":
            return self._turn_edit(source - base, key)
        return self._weight_edit(place, base, source, key)

    def _move(self, place: Place, placebo: int | None) -> Blend:
        def move(base: Tensor, source: Tensor) -> Tensor:
            if place.within is None and placebo is None:
                return source
            step = source - base
            if place.within is not None:
                step = step @ self.along[place].to(base)
            return base + (step if placebo is None else step @ _random_turn(base.shape[-1], placebo).to(base))

        return move

    def _swap_edit(self, place: Place, name: str, move: Blend) -> HookEdit:
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

    def _weight_edit(
        self, place: Place, base: Float[Tensor, "row"], source: Float[Tensor, "row"], key: int
    ) -> HookEdit:
        """A hook that adds log(base / source) to the first token's scores: against it, base tokens look like source."""
        token_ids, row = self.pairs.base.token_ids, self.pairs.row
        heavier = torch.zeros(token_ids.shape, device=token_ids.device)
        heavier[:, key] = 1
        if place.of_kind:
            heavier = (token_ids == token_ids[:, key : key + 1]).float()
        step = (base / source).log()[:, None] * heavier

        def edit(scores: Float[Tensor, "row head query key"], hook: object) -> Tensor:
            if place.n_queries is None:
                return scores + step[:, None, None, :]
            new = scores.clone()
            new[row, :, self.pairs.column] += step[:, None, :]
            return new

        return edit

    def _turn_edit(self, places: Float[Tensor, "row"], key: int) -> HookEdit:
        """A hook that turns a key as if its token stood `places` further back."""
        cos, sin = self.counter.rotary_cos, self.counter.rotary_sin
        index = places.abs().long()
        back = torch.where(places > 0, -1.0, 1.0)[:, None]  # angles of negative positions are those of positive ones

        def edit(keys: Float[Tensor, "row pos head d_head"], hook: object) -> Tensor:
            new = keys.clone()
            angles = cos[index][:, None, None], (back * sin[index])[:, None, None]
            new[:, key : key + 1] = rotate(keys[:, key : key + 1], *angles)
            return new

        return edit

    def _share_edit(self, place: Place, name: str) -> HookEdit:
        """A hook that gives the first token the source's share of attention, at the last tokens; others are scaled."""
        row, pairs, donor = self.pairs.row, self.pairs, self.source[name]

        def edit(pattern: Float[Tensor, "row head query key"], hook: object) -> Tensor:
            new = pattern.clone()
            for back in range(place.n_queries or 1):
                here, there = (pairs.column - back).clamp(min=0), (pairs.source_column - back).clamp(min=0)
                now, share = pattern[row, :, here], donor[row, :, there, 0]
                scaled = now * ((1 - share) / (1 - now[..., 0]).clamp(min=1e-9))[..., None]
                scaled[..., 0] = share
                new[row, :, here] = scaled
            return new

        return edit


def span(effects: Float[Tensor, "_ d"]) -> Basis:
    """Orthonormal directions that hold nearly all of the effects, at most MAX_RANK of them."""
    if len(effects) < effects.shape[1]:  # few effects in many directions, such as those of a state
        _, singular, across = torch.linalg.svd(effects, full_matrices=False)
        energy, directions = singular**2, across.T
    else:
        energy, directions = torch.linalg.eigh(effects.T @ effects)
        energy, directions = energy.flip(0).clamp(min=0), directions.flip(1)
    share = energy.cumsum(0) / energy.sum().clamp(min=1e-30)
    rank = min(int((share < EXPLAINED).sum()) + 1, MAX_RANK, len(energy))
    return directions[:, :rank].float().contiguous()


def _random_turn(width: int, seed: int) -> Float[Tensor, "d_in d_out"]:
    """A random orthogonal matrix, which keeps the length of what it multiplies."""
    return torch.linalg.svd(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))[0]
