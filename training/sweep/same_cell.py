"""The command that trains counters like a given one, with other seeds."""

import shlex
from collections.abc import Sequence
from typing import Any

from training.config import RunConfig, TrainConfig, architecture_name
from training.presets import resolve
from training.sweep.grid import OPTIONS, expand

NOT_THE_RUN = ("record", "hardware")  # groups of options that change nothing about what is learnt
IN_ARCHITECTURE = ("family", "position")


def sweep_line(training: dict[str, Any], seeds: Sequence[int]) -> str:
    """`countlens sweep ...` that trains these seeds of a run, from what its checkpoint says of its training.

    Options that the preset gives anyway are left out.
    """
    config = resolve(TrainConfig.from_dict(training))
    cell: dict[str, Any] = {"task": config.data.task, "architecture": architecture_name(config.model)}
    if config.preset != TrainConfig().preset:
        cell["preset"] = config.preset
    if config.data.bos:
        cell["bos"] = True
    # What the preset gives may itself depend on options, such as bos or the number of layers.
    while different := _different(config, expand([cell])[0].config):
        cell |= different
    words = [word for name, value in cell.items() for word in (_flag(name), _value(name, value))]
    return shlex.join(["countlens", "sweep", *words, "--seed", *map(str, seeds)])


def _different(config: RunConfig, usual: RunConfig) -> dict[str, Any]:
    """The options whose value is not the usual one. None is left out: it means that the family lacks the option."""
    different = {}
    for name, group in OPTIONS.items():
        value = getattr(getattr(config, group), name)
        is_other = value != getattr(getattr(usual, group), name)
        if is_other and value is not None and group not in NOT_THE_RUN and name not in IN_ARCHITECTURE:
            different[name] = value
    return different


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _value(name: str, value: Any) -> str:
    return ("with" if value else "without") if name == "bos" else str(value)
