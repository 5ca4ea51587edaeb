"""Which device a run is on; nothing else in the project asks for one by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from models.errors import CountLensError
from training.config import DeviceOptions

AUTOCAST_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is the machine's accelerator (CUDA, Apple's or another), else the CPU."""
    best = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if name == "auto":
        return best
    if name not in ("cpu", best.type):
        available = "cpu" if best.type == "cpu" else f"cpu, {best.type}"
        raise CountLensError(f"device {name!r} is not there: this machine has {available}")
    return torch.device(name)


@contextmanager
def dropout_stream(device: torch.device, state: Tensor) -> Iterator[None]:
    """Torch's own random stream, which dropout draws from, set for a while and then as it was before."""
    before = dropout_state(device)
    _random_module(device).set_rng_state(state)
    try:
        yield
    finally:
        _random_module(device).set_rng_state(before)


def dropout_state(device: torch.device) -> Tensor:
    """Where torch's own random stream on a device is now."""
    return _random_module(device).get_rng_state()


def _random_module(device: torch.device) -> ModuleType:
    """The module that keeps the random stream of a device: `torch`, `torch.cuda`, `torch.mps`, ..."""
    return torch if device.type == "cpu" else torch.get_device_module(device)


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
