"""Activations of rows of equal tokens at contiguous PIDs, after the tokens that a task puts first (bos, a start)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError
from probes.reading.periods import LEAST_ROUNDS
from probes.result import NotApplicable
from probes.sites import Site, site_activations
from training.tasks import Task

USUAL_PIDS = 128


def n_untested(task: Task) -> int:
    """How many of the equal tokens are left untested: 1, the row's first token, or 0 after bos or a start number."""
    return 0 if task.prefix else 1


def equal_token_row(task: Task, counted: int) -> Int[Tensor, "pos"]:
    """A row with this many tokens of the task's first kind, after the task's prefix."""
    return torch.tensor(task.vocab.encode([*task.prefix_tokens, *[task.kinds[0]] * counted]))


def equal_token_activations(
    counter: Counter, task: Task, pids: Int[np.ndarray, "pos"], sites: Sequence[Site], token: str
) -> dict[Site, Float[np.ndarray, "pos _"]]:
    """The activations at each site for equal tokens at these PIDs; the task's prefix comes before them."""
    tokens = torch.tensor([task.vocab.encode([*task.prefix_tokens, *[token] * len(pids)])], device=counter.device)
    position_ids = torch.arange(int(pids[0]) - task.prefix, int(pids[-1]) + 1, device=counter.device)[None]
    rows = site_activations(counter, tokens, position_ids, sites)
    return {site: row[0, task.prefix :] for site, row in rows.items()}


def contiguous_pids(counter: Counter, pids: Sequence[int] | None, n_prefix: int) -> Int[np.ndarray, "pos"]:
    """The given PIDs, or by default the first 128 that the counter has; refuses PIDs that are not contiguous."""
    end = counter.cfg.max_position if counter.has_positions else max(USUAL_PIDS, counter.cfg.max_position)
    places = np.arange(n_prefix, min(USUAL_PIDS, end)) if pids is None else np.array(pids, dtype=int)
    if pids is None and len(places) <= 2 * LEAST_ROUNDS:
        raise NotApplicable(f"max_position={end} leaves {len(places)} positions, too few to see any period")
    if len(places) < 2 or (np.diff(places) != 1).any() or places[0] < n_prefix or places[-1] >= end:
        before = f" ({n_prefix} before them for the task's own first tokens)" if n_prefix else ""
        raise CountLensError(f"PIDs {list(places)}: give two or more contiguous ones of {n_prefix}..{end - 1}{before}")
    return places
