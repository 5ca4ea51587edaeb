"""What a checkpoint file says of itself, as far as lists of counters show it. Reads no tensor and needs no torch.

A counter that is loaded is checked in full; here it is enough that every value that a list shows is what it should be.
"""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from models.errors import CountLensError
from models.info import CheckpointInfo, read_info

LONGEST_NAME = 200  # characters
OF_TASK: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "bos": (bool, NoneType),
    "train_length": (int, NoneType),
    "ood_length": (int, NoneType),
}
OF_MODEL: dict[str, tuple[type, ...]] = {
    "position": (str, NoneType),
    "n_layers": (int, NoneType),
    "d_model": (int, NoneType),
    "n_heads": (int, NoneType),
    "causal": (bool, NoneType),
}
OF_FILE: dict[str, tuple[type, ...]] = {
    "family": (str,),
    "policy": (str, NoneType),
    "seed": (int, NoneType),
    "step": (int, NoneType),
    "model": (dict,),
    "task": (dict, NoneType),
    "scores": (dict,),
}


def read_header(path: Path) -> CheckpointInfo:
    """The metadata of a checkpoint file; an error where a list could not show it."""
    try:
        is_file = path.is_file()
    except OSError as error:
        raise CountLensError(f"cannot read {path}: {error.strerror}") from error
    if not is_file:  # a named pipe would keep its reader waiting
        raise CountLensError(f"{path} is no file")
    info = read_info(path)
    _check(path, "", vars(info), OF_FILE)
    _check(path, "model.", info.model, OF_MODEL)
    if info.task is not None:
        _check(path, "task.", info.task, OF_TASK)
    for side, score in info.scores.items():
        if type(score) not in (int, float) or not 0 <= score <= 100:
            raise CountLensError(f"{path}: its metadata has the score {side!r} = {_brief(score)}: it must be 0 to 100")
    return info


def _check(path: Path, where: str, values: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    for name, allowed in kinds.items():
        value = values.get(name)
        if type(value) not in allowed:
            names = " or ".join("null" if kind is NoneType else kind.__name__ for kind in allowed)
            raise CountLensError(f"{path}: its metadata has {where}{name} = {_brief(value)}: it must be {names}")
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            raise CountLensError(f"{path}: {where}{name} in its metadata is longer than {LONGEST_NAME} characters")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
