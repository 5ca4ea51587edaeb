"""Which device a run is on; nothing else in the project asks for one by name."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from models.errors import CountLensError
from training.config import DeviceOptions

AUTOCAST_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


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


def scaler_state(scaler: torch.amp.GradScaler) -> Tensor:
    """The loss scale, and for how many steps it has not overflowed."""
    state = scaler.state_dict()
    return torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float64)


def restore_scaler(scaler: torch.amp.GradScaler, state: Tensor) -> None:
    """The inverse of `scaler_state`."""
    scale, tracker = state.tolist()
    scaler.load_state_dict(scaler.state_dict() | {"scale": scale, "_growth_tracker": int(tracker)})


def prepare(options: DeviceOptions) -> torch.device:
    """Sets the number of threads and returns the device; refuses options that it does not support."""
    device = choose_device(options.device)
    if options.bf16 and options.precision == "fp16":
        raise CountLensError("--bf16 and --precision fp16 exclude each other: give one")
    if options.autocast != "fp32" and device.type != "cuda":
        option = "--bf16" if options.bf16 else f"--precision {options.precision}"
        raise CountLensError(f"{option} is for CUDA, and this run is on {device.type}: leave it out")
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    return device
