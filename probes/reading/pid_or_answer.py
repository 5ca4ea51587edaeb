"""Does a state follow the position id, or the answer? In one row that begins at PID 0 the two are the same.

Rows of equal tokens at many shifts tell them apart: the PID modulo m is that of shift plus column, the answer that of
the column alone. Of the variance of activations over shifts and columns, each gets what it explains beyond the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from models.counter import Counter
from probes.inputs.equal_tokens import first_tested
from probes.result import NotApplicable
from probes.sites import Site, site_activations
from training.tasks import Task

ROUNDS = 2  # of the period that shifts go through


@dataclass(frozen=True)
class Separation:
    """Shares of a site's variance, between 0 and 1; what both could explain, or neither, is in neither."""

    pid: float  # explained by the PID modulo m and not by the answer
    answer: float  # the other way round


def pid_or_answer(counter: Counter, task: Task, sites: Sequence[Site]) -> dict[Site, Separation]:
    """What each of these sites follows, on rows of the training length at every shift of two rounds."""
    if task.period is None or not counter.has_positions:
        raise NotApplicable("only modular counters with position ids have both a PID and an answer modulo m")
    shifts = torch.arange(min(ROUNDS * task.period, counter.cfg.max_position - task.train_length - task.prefix))
    if len(shifts) < task.period:
        raise NotApplicable(f"max_position={counter.cfg.max_position} leaves fewer than {task.period} shifts")
    tokens = [*task.prefix_tokens, *[task.kinds[0]] * task.train_length]
    token_ids = torch.tensor(task.vocab.encode(tokens), device=counter.device).expand(len(shifts), -1)
    position_ids = shifts[:, None] + torch.arange(len(tokens))
    rows = site_activations(counter, token_ids, position_ids.to(counter.device), sites)
    start = task.prefix + first_tested(task)
    pids, answers = (x[:, start:].numpy() % task.period for x in (position_ids, position_ids - shifts[:, None]))
    flat = {site: x[:, start:].reshape(pids.size, -1) for site, x in rows.items()}
    return {site: separate(x, pids.ravel(), answers.ravel()) for site, x in flat.items()}


def separate(
    x: Float[np.ndarray, "token d"], pids: Int[np.ndarray, "token"], answers: Int[np.ndarray, "token"]
) -> Separation:
    """What two groupings of tokens explain of their activations, each beyond the other."""
    x = x - x.mean(0)
    total = float((x**2).sum())
    if total == 0:
        return Separation(0.0, 0.0)
    by_pid, by_answer = _indicators(pids), _indicators(answers)
    both = _unexplained(x, np.hstack([by_pid, by_answer]))
    return Separation(
        *(max(0.0, _unexplained(x, other) - both) / (total / (len(x) - 1)) for other in (by_answer, by_pid))
    )


def _indicators(groups: Int[np.ndarray, "token"]) -> Float[np.ndarray, "token group"]:
    return (groups[:, None] == np.unique(groups)).astype(float)


def _unexplained(x: Float[np.ndarray, "token d"], design: Float[np.ndarray, "token group"]) -> float:
    """Variance that a design leaves, for the degrees of freedom that it leaves."""
    coefficients, _, rank, _ = np.linalg.lstsq(design, x, rcond=None)
    return float(((x - design @ coefficients) ** 2).sum()) / (len(x) - int(rank))
