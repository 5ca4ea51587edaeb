"""Batches: rows of a task with position ids of a policy. Rows that a counter cannot tell apart are computed once.

A causal counter's answer at a token depends only on the tokens before it. So one long row stands for all shorter rows
that are its beginnings, with each token weighted by how many of these rows reach it. For tasks whose rows can be
listed, the expected loss is then a weighted sum over a few rows: exact, and far cheaper than drawing rows of every
length.
"""

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.counter import Counter
from training.policies import CONTIGUOUS, get_policy
from training.tasks import NOT_SCORED, PAD, Rows, Split, Task

SHORTEST_ROW = 4  # tokens, where rows begin to grow


@dataclass(frozen=True)
class Batch:
    """Rows as a counter takes them. `weights` says how many drawn rows each of them stands for."""

    token_ids: Int[Tensor, "batch pos"]
    position_ids: Int[Tensor, "batch pos"]
    label_ids: Int[Tensor, "batch pos"]
    attention_mask: Bool[Tensor, "batch pos"]  # False at padding
    weights: Float[Tensor, "batch"]

    def rows(self, index: slice | Int[Tensor, "some"]) -> "Batch":
        """A batch of some of the rows."""
        return Batch(*(getattr(self, field.name)[index] for field in fields(self)))

    def beginnings(self, n_pos: int) -> "Batch":
        """The same rows, cut after `n_pos` tokens."""
        return replace(
            self,
            **{field.name: getattr(self, field.name)[:, :n_pos] for field in fields(self) if field.name != "weights"},
        )

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True)
class WeightedTokens:
    """Rows to compute, and the weight of each of their tokens in a loss or a score."""

    batch: Batch
    shares: Float[Tensor, "batch pos"]

    def beginnings(self, n_pos: int) -> "WeightedTokens":
        """The same rows, cut after `n_pos` tokens."""
        return WeightedTokens(self.batch.beginnings(n_pos), self.shares[:, :n_pos])


def grown_length(step: int, length_warmup: int | None, n_pos: int) -> int:
    """How many tokens of a row of `n_pos` are trained on at a step (the first is 0): all, unless rows grow."""
    if length_warmup is None or step >= length_warmup:
        return n_pos
    return min(n_pos, math.ceil(SHORTEST_ROW + (step + 1) / length_warmup * (n_pos - SHORTEST_ROW)))


def draw_batch(
    task: Task, policy: str, max_position: int, split: Split, size: int, generator: torch.Generator
) -> Batch:
    """A batch of `size` rows of a split, drawn on the generator's device."""
    rows = task.sample(split, size, generator)
    n_pos = rows.token_ids.shape[1]
    position_ids = get_policy(policy).draw(rows.lengths, n_pos, max_position, generator)
    inside = torch.arange(n_pos, device=rows.lengths.device) < rows.lengths[:, None]
    weights = torch.ones(size, device=rows.lengths.device)
    return Batch(rows.token_ids, position_ids, task.label(rows.token_ids), inside, weights)


def merge_equal_rows(batch: Batch, ignore_positions: bool) -> Batch:
    """The batch without repeated rows, each row weighted by how often it occurs. Loss and gradient stay the same.

    Rows are equal if their tokens are equal and, unless `ignore_positions`, their position ids too.
    """
    key = batch.token_ids if ignore_positions else torch.cat([batch.token_ids, batch.position_ids], 1)
    _, group, counts = torch.unique(key, dim=0, return_inverse=True, return_counts=True)
    first = torch.full_like(counts, len(key)).scatter_reduce(
        0, group, torch.arange(len(key), device=key.device), "amin"
    )
    return replace(batch.rows(first), weights=counts.to(batch.weights.dtype))


def draw_tokens(
    counter: Counter,
    task: Task,
    policy: str,
    split: Split,
    size: int,
    generator: torch.Generator,
    independent_rows: bool = False,
) -> WeightedTokens:
    """At most `size` rows whose weighted tokens represent the whole split without bias.

    If the split's rows can be listed and are at most `size`, all of them are returned and nothing is random. If they
    are more, some are drawn, each with a probability proportional to the weight of its tokens. With
    `independent_rows` rows are simply drawn, as dropout requires: it treats two equal tokens differently.
    """
    max_position = position_range(counter, task)
    table = None
    if not independent_rows:
        simplest = simplest_policy(counter, policy)
        table = tabulate_rows(task, simplest, max_position, split, counter.cfg.causal, generator.device)
    if table is None:
        batch = draw_batch(task, policy, max_position, split, size, generator)
        return WeightedTokens(batch, batch.attention_mask.float())
    return table if len(table.shares) <= size else _draw_rows(table, size, generator)


def position_range(counter: Counter, task: Task) -> int:
    """The number of position ids: all are below it. For a counter without positions, enough for the longest row."""
    return counter.cfg.max_position if counter.has_positions else max(counter.cfg.max_position, task.longest_row)


def simplest_policy(counter: Counter, policy: str) -> str:
    """The name of the policy whose rows are enough to compute the counter's logits on all rows of `policy`.

    Contiguous rows are enough if the counter ignores positions, or if it ignores shifts and `policy` only shifts rows.
    Otherwise it is `policy` itself.
    """
    only_shifts = get_policy(policy).count_offsets is not None
    return CONTIGUOUS if counter.ignores_positions or (only_shifts and counter.ignores_shifts) else policy


@lru_cache(maxsize=64)
def tabulate_rows(
    task: Task, policy: str, max_position: int, split: Split, causal: bool, device: torch.device
) -> WeightedTokens | None:
    """Every row that a counter must compute for the expected loss of a split; None if there are too many to list.

    The share of a token is how often, on average, a random row of the split has this token at this place.
    """
    listed, count_offsets = task.list_rows(split), get_policy(policy).count_offsets
    if listed is None or count_offsets is None:
        return None
    rows, probabilities = listed
    offsets = count_offsets(rows.lengths, max_position)
    is_possible = torch.arange(int(offsets.max())) < offsets[:, None]
    by_offset = is_possible * (probabilities / offsets)[:, None]  # [row offset]
    hosts = _find_hosts(rows) if causal else torch.arange(len(rows.lengths))
    inside = (torch.arange(rows.token_ids.shape[1]) < rows.lengths[:, None]).double()
    tokens, positions, shares = [], [], []
    for host in hosts.unique():
        guests = hosts == host
        share = torch.einsum("ro,rp->op", by_offset[guests], inside[guests])  # [offset pos]
        used = share.sum(1).nonzero()[:, 0]
        shares.append(share[used])
        tokens.append(rows.token_ids[host].expand(len(used), -1))
        positions.append(used[:, None] + torch.arange(share.shape[1]))
    share, token_ids = torch.cat(shares), torch.cat(tokens)
    present = share > 0
    token_ids = token_ids.where(present, task.vocab.id(PAD))
    position_ids = torch.cat(positions).clamp(max=max_position - 1)  # reached by padding only
    batch = Batch(token_ids, position_ids, task.label(token_ids), present, torch.ones(len(share)))
    return WeightedTokens(batch.to(device), share.float().to(device))


def _find_hosts(rows: Rows) -> Int[Tensor, "row"]:
    """For each row the index of the longest row that begins with it, which may be the row itself."""
    hosts = torch.full_like(rows.lengths, -1)
    beyond = torch.arange(rows.token_ids.shape[1]) >= rows.lengths[:, None]
    for row in rows.lengths.argsort(descending=True, stable=True).tolist():
        if hosts[row] < 0:
            guests = ((rows.token_ids == rows.token_ids[row]) | beyond).all(1)
            hosts[guests & (hosts < 0)] = row
    return hosts


def _draw_rows(table: WeightedTokens, size: int, generator: torch.Generator) -> WeightedTokens:
    """Draws `size` rows of a table, each with a probability proportional to the weight of its scored tokens.

    All drawn rows get the same total weight, so the expected sum of weighted tokens is that of the table, up to a
    factor. The rows are shuffled and then taken at even distances of weight, from one random starting point on.
    """
    scored = table.shares * (table.batch.label_ids != NOT_SCORED)
    device = generator.device
    order = torch.randperm(len(scored), generator=generator, device=device)
    mass = scored.sum(1)
    edges = mass[order].cumsum(0)
    start = torch.rand((), generator=generator, device=device)
    points = (torch.arange(size, device=device) + start) * (edges[-1] / size)
    indices = order[torch.searchsorted(edges, points).clamp(max=len(order) - 1)]
    return WeightedTokens(table.batch.rows(indices), table.shares[indices] / mass[indices, None])
