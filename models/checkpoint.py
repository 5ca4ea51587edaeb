"""One safetensors file is one counter: tensors in HookedTransformer's format, the rest in its metadata."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter, config_from_dict, config_to_dict, family_of
from models.files import atomic_path
from models.find import find_checkpoint
from models.info import CheckpointInfo, read_info


def save_counter(path: Path, counter: Counter, info: CheckpointInfo | None = None) -> None:
    """Writes the counter to one file, whole or not at all. `info` adds what the model cannot know of itself."""
    info = replace(
        info or CheckpointInfo(family="", model={}),
        family=family_of(counter.cfg),
        model=config_to_dict(counter.cfg),
        transformer_lens=counter.transformer_lens_config(),
    )
    tensors = {name: tensor.cpu().contiguous() for name, tensor in counter.interchange_state().items()}
    save_tensors(path, tensors, info.to_metadata())


def load_counter(name_or_path: str | Path, device: str | torch.device = "cpu") -> Counter:
    """The counter of a checkpoint file, a run folder, or a name such as `mod10/ape-2L/seed0`; in eval mode."""
    path = find_checkpoint(name_or_path)
    info = read_info(path)
    counter = build_counter(config_from_dict(info.family, info.model))
    tensors = load_tensors(path)
    try:
        counter.load_interchange_state(tensors)
    except KeyError as error:
        raise CountLensError(f"{path} lacks the tensor {error}: it is not whole or not of this version") from error
    except RuntimeError as error:
        raise CountLensError(f"{path}: its tensors do not fit its own config: {error}") from error
    counter.info = info
    return counter.to(device).eval()


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """A safetensors file, whole or not at all."""
    content = save(tensors, metadata)
    with atomic_path(path) as unfinished:
        unfinished.write_bytes(content)  # safetensors' own writer ignores the umask


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CountLensError(f"{path} cannot be read: {error}") from error
