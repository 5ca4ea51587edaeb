"""The device of a run, its random stream and its loss scaler. Only this module chooses devices by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from models.errors import CountLensError
from training.config import DeviceOptions

AUTOCAST_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` is the machine's accelerator (CUDA, MPS or another) or, without one, the CPU."""
    best = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if name == "auto":
        return best
    if name not in ("cpu", best.type):
        available = "cpu" if best.type == "cpu" else f"cpu, {best.type}"
        raise CountLensError(f"device {name!r} does not exist: this machine has {available}")
    return torch.device(name)


@contextmanager
def dropout_stream(device: torch.device, state: Tensor) -> Iterator[None]:
    """Sets torch's own random stream, from which dropout draws, for the block; afterwards it is as it was before."""
    before = dropout_state(device)
    _random_module(device).set_rng_state(state)
    try:
        yield
    finally:
        _random_module(device).set_rng_state(before)


def dropout_state(device: torch.device) -> Tensor:
    """The current state of torch's own random stream on a device."""
    return _random_module(device).get_rng_state()


def _random_module(device: torch.device) -> ModuleType:
    """The module that holds a device's random stream: `torch`, `torch.cuda`, `torch.mps`, ..."""
    return torch if device.type == "cpu" else torch.get_device_module(device)


def scaler_state(scaler: torch.amp.GradScaler) -> Tensor:
    """The scaler's state as a tensor: the loss scale, and the number of steps since it last overflowed."""
    state = scaler.state_dict()
    return torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float64)


def restore_scaler(scaler: torch.amp.GradScaler, state: Tensor) -> None:
    """Sets a scaler to a state from `scaler_state`."""
    scale, tracker = state.tolist()
    scaler.load_state_dict(scaler.state_dict() | {"scale": scale, "_growth_tracker": int(tracker)})


def prepare(options: DeviceOptions) -> torch.device:
    """Sets the number of CPU threads and returns the device. Refuses options that the device does not support."""
    device = choose_device(options.device)
    if options.bf16 and options.precision == "fp16":
        raise CountLensError("--bf16 and --precision fp16 exclude each other: give one")
    if options.autocast != "fp32" and device.type != "cuda":
        option = "--bf16" if options.bf16 else f"--precision {options.precision}"
        raise CountLensError(f"{option} is for CUDA, and this run is on {device.type}: leave it out")
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    return device
