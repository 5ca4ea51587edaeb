"""The state that a stopped run resumes from, in one file with a checksum: a damaged file is never used.

The state also holds digests of the other files of the run, so that a run never ends with files that were damaged
while it was stopped.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.border import decode_json
from models.checkpoint import load_tensors, save_tensors
from models.errors import CountLensError
from models.header import read_info, read_metadata
from training.config import RunConfig


@dataclass(frozen=True)
class TrainState:
    """Everything that the next step depends on, the best scores so far, and digests of the run's files."""

    step: int
    seconds: float  # spent on training up to here
    best: dict[str, Any] | None  # step and scores of the best checkpoint
    digests: dict[str, str]  # of the run's files up to this step, by their names in the run folder
    tensors: dict[str, Tensor]  # model.*, optimiser.*, generator, dropout


def write_state(path: Path, state: TrainState, config: RunConfig) -> None:
    """Writes the state of a run with this config, whole or not at all."""
    fields = {"step": state.step, "seconds": state.seconds, "best": state.best, "digests": state.digests}
    text = json.dumps({**fields, "config": config.to_dict()})
    save_tensors(path, state.tensors, {"state": text, "sha256": _checksum(text, state.tensors)})


def read_state(path: Path, config: RunConfig, template: Mapping[str, Tensor] | None = None) -> TrainState:
    """Reads a state. Refuses a file that is damaged, or has other settings or tensors than the run.

    `template` has the names, shapes and dtypes that the run's tensors must have.
    """
    metadata, tensors = read_metadata(path), load_tensors(path)
    text = metadata.get("state", "")
    if metadata.get("sha256") != _checksum(text, tensors):
        raise CountLensError(f"{path} is damaged or of another version of CountLens: its checksum does not match")
    try:
        fields = json.loads(text)
        same_config = RunConfig.from_dict(fields.pop("config")) == config
        state = TrainState(**fields, tensors=tensors)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CountLensError(f"{path} is of another version of CountLens: {error}") from error
    if not same_config:
        raise CountLensError(f"{path} was saved with other settings than those in config.json")
    if template is not None:
        _check_layout(path, tensors, template)
    return state


def fingerprint(path: Path) -> str:
    """A digest of a checkpoint file, except for its scores, which are replaced when the run is finished."""
    info = replace(read_info(path), scores={}, last_scores={})
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = decode_json(content[8:start], f"the header of {path}")
    layout = {name: entry for name, entry in header.items() if name != "__metadata__"}
    digest = hashlib.sha256(json.dumps([asdict(info), layout]).encode())
    digest.update(content[start:])
    return digest.hexdigest()


def _check_layout(path: Path, tensors: Mapping[str, Tensor], template: Mapping[str, Tensor]) -> None:
    """Refuses tensors whose names, shapes or dtypes are not those of the template.

    Fused AdamW does not check the shapes of its moments: it would write beyond their end.
    """
    layout, needed = _layout(tensors), _layout(template)
    for name in sorted(layout.keys() | needed.keys()):
        if layout.get(name) != needed.get(name):
            raise CountLensError(
                f"{path} does not fit this run on this device: its tensor {name} is {layout.get(name, 'missing')}, "
                f"the run needs {needed.get(name, 'none')}"
            )


def _layout(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in tensors.items()}


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
