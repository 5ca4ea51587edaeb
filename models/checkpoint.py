"""Counters as files: one safetensors file each, with tensors in HookedTransformer's format and the rest as metadata."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from models.atomic import atomic_path
from models.config import CounterConfig
from models.counter import Counter
from models.errors import CountLensError, shown
from models.families import build_counter, config_from_dict, config_to_dict, family_of
from models.find import find_checkpoint
from models.header import CheckpointInfo, read_info, read_metadata

STORED_DTYPE = "F32"  # safetensors' name of the only dtype that a counter is stored in


def save_counter(path: Path, counter: Counter, info: CheckpointInfo | None = None) -> None:
    """Writes the counter to one file, whole or not at all. `info` adds what a model does not know, such as its task."""
    info = replace(
        info or CheckpointInfo(family="", model={}),
        family=family_of(counter.cfg),
        model=config_to_dict(counter.cfg),
        transformer_lens=counter.transformer_lens_config(),
    )
    tensors = {name: tensor.cpu().contiguous() for name, tensor in counter.interchange_state().items()}
    save_tensors(path, tensors, info.to_metadata())


def load_counter(name_or_path: str | Path, device: str | torch.device = "cpu") -> Counter:
    """Loads a counter, in eval mode, from a checkpoint file, a run folder, or a name such as `mod10/ape-2L/seed0`."""
    path = find_checkpoint(name_or_path)
    info = read_info(path)
    cfg = config_from_dict(info.family, info.model)
    _check_header(path, cfg)
    tensors = load_tensors(path)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CountLensError(
                f"{path}: {name} holds numbers that are not finite. Either the training diverged (lower its lr), "
                "or the file is damaged (copy it again)"
            )
    counter = build_counter(cfg)
    counter.load_interchange_state(tensors)
    counter.info = info
    return counter.to(device).eval()


def _check_header(path: Path, cfg: CounterConfig) -> None:
    """Refuses a file whose tensors do not fit the config, before any memory is allocated for them."""
    expected = _expected_shapes(cfg)
    try:
        with safe_open(path, "pt") as file:
            stored = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in stored.items()}
            dtypes = {name: part.get_dtype() for name, part in stored.items()}
    except (SafetensorError, OSError) as error:
        raise CountLensError(f"{path} cannot be read: {error}") from error
    missing = sorted(expected.keys() - shapes.keys())
    if missing:
        raise CountLensError(f"{path} lacks the tensor {missing[0]}: the file is incomplete or of another version")
    for name, shape in shapes.items():
        if name not in expected:
            raise CountLensError(f"{path} has a tensor {shown(name)} that its config does not have")
        if shape != expected[name]:
            raise CountLensError(
                f"{path}: its tensors do not fit its own config: {name} has the shape {shape}, not {expected[name]}"
            )
        if dtypes[name] != STORED_DTYPE:
            raise CountLensError(f"{path}: {name} is stored as {dtypes[name]}: counters are stored as {STORED_DTYPE}")


@lru_cache(maxsize=64)  # the snapshots of a run share one config
def _expected_shapes(cfg: CounterConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that a checkpoint of this config holds, from a counter that takes no memory."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build_counter(cfg).interchange_state().items()}


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Writes a safetensors file, whole or not at all."""
    content = save(tensors, metadata)
    with atomic_path(path) as unfinished:
        unfinished.write_bytes(content)  # safetensors' own writer ignores the umask


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file."""
    read_metadata(path)  # refuses an incomplete file before it is mapped into memory
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CountLensError(f"{path} cannot be read: {error}") from error
