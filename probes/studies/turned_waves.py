"""What a rotary counter answers when some waves of its first token's keys are turned by a few places.

A wave is a pair of columns that rotates with the position. Turning all waves of a key by m places is the same as moving
its token by m places; turning some of them shows which waves the counter reads the distance from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.hooks import hook_name
from models.position_tables import rotate, wave_rates
from models.transformer import Transformer
from probes.inputs.equal_tokens import equal_token_row
from probes.result import NotApplicable, task_of_counter
from training.evaluate import evaluating


@dataclass(frozen=True)
class TurnedWaves:
    """The answers of a modular counter to one row, for each number of places by which waves were turned."""

    turns: Int[Tensor, "turn"]
    is_right: Bool[Tensor, "pos"]  # with nothing turned
    follows: Bool[Tensor, "turn pos"]  # the answer moved by as many places as the waves
    is_inside: Bool[Tensor, "turn pos"]  # the turn implies a count from the training range

    @property
    def share(self) -> float:
        """Share of answers that follow, of those that are right and imply a count from training; NaN if none does."""
        return float(self.follows[self.is_right & self.is_inside].double().mean())


def turn_waves(counter: Transformer, waves: Sequence[int]) -> TurnedWaves:
    """Turns these waves of the first token's keys, in every layer and head, by 1 to b - 1 places, for counting mod b.

    A key that is turned by m places looks like that of a token m places further on: its distance is m tokens less.
    """
    task, _ = task_of_counter(counter)
    if task.period is None or not counter.scheme.rotary:
        raise NotApplicable("waves are turned in rotary counters of modular counting")
    token_ids = equal_token_row(task, task.train_length).to(counter.device)
    turns = torch.arange(1, task.period, device=counter.device)
    answers = _answers(counter, token_ids, torch.cat([torch.zeros_like(turns[:1]), turns]), waves)
    column = torch.arange(len(token_ids), device=counter.device)
    earlier = column - task.prefix - turns[:, None]
    labels = task.label(token_ids[None])[0]
    return TurnedWaves(
        turns,
        (answers[0] == labels) & (column >= task.prefix),
        answers[1:] == task.answer_ids(earlier),
        (earlier >= 0) & (column >= task.prefix),
    )


def _answers(
    counter: Transformer, token_ids: Int[Tensor, "pos"], turns: Int[Tensor, "turn"], waves: Sequence[int]
) -> Int[Tensor, "turn pos"]:
    cfg = counter.cfg
    rates = torch.zeros(cfg.d_head // 2, dtype=torch.float64)
    rates[list(waves)] = wave_rates(cfg.d_head, cfg.periods)[list(waves)]
    angles = torch.outer(turns.double().cpu(), rates).repeat_interleave(2, 1).float()[:, None, None].to(turns.device)

    def turn(keys: Tensor, hook: object) -> Tensor:
        return torch.cat([rotate(keys[:, :1], angles.cos(), angles.sin()), keys[:, 1:]], 1)

    hooks: list[tuple[str, Callable[..., Tensor]]] = [
        (hook_name("rot_k", layer), turn) for layer in range(cfg.n_layers)
    ]
    rows = token_ids.expand(len(turns), -1)
    position_ids = torch.arange(len(token_ids), device=turns.device).expand(rows.shape)
    with evaluating(counter):
        return counter.run_with_hooks(rows, position_ids, fwd_hooks=hooks).argmax(-1)
