"""The optimiser of a run: its algorithm, its parameter groups and its learning rate over time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.counter import Counter
from training.config import Algorithm, OptimiserSettings
from training.run.soap import SOAP, empty_state

Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class OptimiserKind:
    """How an optimiser is built, and the tensors that it keeps for a parameter (whatever their values are)."""

    build: Callable[[Groups, float, torch.device], torch.optim.Optimizer]  # from parameter groups and beta2
    state: Callable[[Tensor], dict[str, Tensor]]


def _adamw(groups: Groups, beta2: float, device: torch.device) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=(0.9, beta2), fused=device.type != "mps")


def _adamw_state(parameter: Tensor) -> dict[str, Tensor]:
    return {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}


def _soap(groups: Groups, beta2: float, device: torch.device) -> torch.optim.Optimizer:
    return SOAP(groups, betas=(0.95, beta2))


ALGORITHMS: dict[Algorithm, OptimiserKind] = {
    "adamw": OptimiserKind(_adamw, _adamw_state),
    "soap": OptimiserKind(_soap, empty_state),
}


def kind_of(options: OptimiserSettings) -> OptimiserKind:
    return ALGORITHMS[options.algorithm or "adamw"]


def build_optimiser(counter: Counter, options: OptimiserSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimiser of a counter. Its groups know their peak rate, of which `set_rates` takes a part."""
    optimiser = kind_of(options).build(optimiser_groups(counter, options), options.beta2, device)
    for group in optimiser.param_groups:
        group["peak_lr"] = group["lr"]
    return optimiser


def set_rates(optimiser: torch.optim.Optimizer, step: int, options: OptimiserSettings) -> None:
    """Gives each group its learning rate for a step (the first is 0)."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak_lr"] * lr_factor(step, options)


def lr_factor(step: int, options: OptimiserSettings) -> float:
    """The learning rate at a step (the first is 0), divided by its peak."""
    warmup, steps = options.warmup_steps, options.steps
    if step < warmup:
        return (step + 1) / warmup
    if options.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def optimiser_groups(counter: Counter, options: OptimiserSettings) -> Groups:
    """The counter's parameter groups; embeddings with a learning rate or decay of their own have their own groups."""
    groups = counter.parameter_groups(options.lr, options.weight_decay)
    groups = _set_apart(groups, counter.embed.W_E, options.embed_lr, options.embed_decay)
    return _set_apart(groups, counter.learned_positions, None, options.position_decay)


def _set_apart(groups: Groups, parameter: Tensor | None, rate: float | None, decay: float | None) -> Groups:
    """The groups, with a parameter in one of its own if it has a rate (a factor of the others') or decay of its own."""
    if parameter is None or (rate is None and decay is None):
        return groups
    home = next(group for group in groups if any(other is parameter for other in group["params"]))
    others = [other for other in home["params"] if other is not parameter]
    rest = [home | {"params": others} if group is home else group for group in groups]
    lr = home["lr"] * (1.0 if rate is None else rate)
    own_decay = home["weight_decay"] if decay is None else decay
    return [*rest, {"params": [parameter], "lr": lr, "weight_decay": own_decay}]
