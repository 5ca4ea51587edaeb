"""Which device a run is on; nothing else in the project asks for one by name."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from models.errors import CountLensError
from training.config import DeviceOptions


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is CUDA, else Apple's, else the CPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(device for device in ("cuda", "mps", "cpu") if there[device]))
    if not there.get(name):
        available = ", ".join(device for device, is_there in there.items() if is_there)
        raise CountLensError(f"device {name!r} is not there: this machine has {available}")
    return torch.device(name)


@contextmanager
def dropout_stream(device: torch.device, state: Tensor) -> Iterator[None]:
    """Torch's own random stream, which dropout draws from, set for a while and then as it was before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        _default_generator(device).set_state(state)
        yield


def dropout_state(device: torch.device) -> Tensor:
    """Where torch's own random stream is now."""
    return _default_generator(device).get_state()


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[device.index or 0]


def prepare(options: DeviceOptions) -> torch.device:
    """Sets the number of threads and returns the device; refuses options that it does not support."""
    device = choose_device(options.device)
    if options.bf16 and device.type != "cuda":
        raise CountLensError(f"--bf16 is for CUDA, and this run is on {device.type}: leave it out")
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    return device
