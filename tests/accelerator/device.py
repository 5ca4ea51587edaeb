"""A GPU made of Python: device `accel`, whose tensors refuse to meet tensors of the CPU, as those of a GPU do.

Its memory is the host's: DLPack hands the same bytes from one device to the other, so a tensor of `accel` has real
strides and real views, and every operation is the CPU's own. What differs is what matters for a test: an operation on
tensors of both devices is an error, a generator belongs to one device, and each time the host has to wait for a value
of the device is counted (`host_reads`).

As a pytest plugin it registers the device before anything else is imported. Torch keeps it, and chooses it as *the*
accelerator, until the process ends, so these tests run in a process of their own (`tests/test_accelerator.py`):

    python -m pytest -p tests.accelerator.device tests/accelerator
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "accel"
HOST, EXTENSION = 1, 12  # kDLCPU and kDLExtDev, which torch takes for a device from outside
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
aten = torch.ops.aten
# On CUDA too these take index tensors, or the one value that they write, from the CPU.
TAKE_INDICES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
TAKE_VALUE = {aten.masked_fill, aten.masked_fill_, aten.fill, aten.fill_, *TAKE_INDICES}

host_reads: list[str] = []  # the operations at which the host waited for the device, in order


def pytest_configure() -> None:
    """Registers the device: pytest calls this when it loads the plugin."""
    _setup_privateuseone_for_python_backend(NAME, _Module(f"torch.{NAME}"))
    _LIBRARY.fallback(_on_host, "PrivateUse1")
    kernels = {"as_strided": _view, "copy_": _copy, "_local_scalar_dense": _item}
    for operation, kernel in (kernels | {name: partial(_on_host, name) for name in SUBSTITUTES}).items():
        _ATEN.impl(operation, kernel, "PrivateUse1")
    torch.Generator = Generator  # type: ignore[misc]
    _OwnGenerators().__enter__()


class Generator(torch.Generator):
    """A generator that knows its device. Both devices draw the same numbers from the same seed."""

    def __new__(cls, device: str | torch.device = "cpu") -> "Generator":
        generator = super().__new__(cls, "cpu")
        generator.place = torch.device(device)
        return generator

    def __init__(self, device: str | torch.device = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place


class _Module(ModuleType):
    """What `torch.accel` offers, by the names of `torch.cuda`."""

    @cached_property
    def default_generator(self) -> Generator:
        return Generator(NAME)

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.default_generator.manual_seed(seed)

    def get_rng_state(self, device: object = NAME) -> Tensor:
        return self.default_generator.get_state()

    def set_rng_state(self, state: Tensor, device: object = NAME) -> None:
        self.default_generator.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


class _OwnGenerators(TorchFunctionMode):
    """Refuses a generator of one device for numbers on the other."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if isinstance(generator, Generator):
            target = args[0].device if args and isinstance(args[0], Tensor) else kwargs.get("device") or "cpu"
            if torch.device(target).type != generator.device.type:
                raise RuntimeError(f"expected a generator of {target} but found one of {generator.device.type}")
        return function(*args, **kwargs)


class _Labelled(ctypes.Structure):
    """The beginning of DLPack's tensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _relabel(tensor: Tensor, device_type: int) -> Tensor:
    """The same memory as a tensor of another device."""
    capsule = torch._C._to_dlpack(tensor)
    label = _Labelled.from_address(_pointer(capsule, b"dltensor"))
    label.device_type, label.device_id = device_type, 0
    return torch._C._from_dlpack(capsule)


def _on_host(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation that has no kernel below: the CPU's, on the same memory."""
    tensors = [value for value in _values([args, list(kwargs.values())]) if isinstance(value, Tensor)]
    _refuse_other_device(operation, args, tensors)
    if _has_tag(operation, torch.Tag.dynamic_output_shape) or _has_tag(operation, torch.Tag.data_dependent_output):
        host_reads.append(str(operation))
    on_host = {id(tensor): _host_tensor(tensor) for tensor in tensors if tensor.device.type == NAME}
    args = _each(lambda value: _host_value(value, on_host), args)
    kwargs = {name: _each(lambda value: _host_value(value, on_host), value) for name, value in kwargs.items()}
    run = SUBSTITUTES.get(operation, operation if _takes(operation, args) else operation.overloadpacket)
    if _has_tag(operation, torch.Tag.nondeterministic_seeded) and kwargs.get("generator") is None:
        result = _with_own_stream(run, args, kwargs)
    else:
        result = run(*args, **kwargs)
    sources = [(tensor, on_host[id(tensor)]) for tensor in tensors if id(tensor) in on_host]
    return _each(lambda value: _device_value(value, sources), result)


@cache
def _has_tag(operation: Any, tag: torch.Tag) -> bool:
    return tag in operation.tags


def _values(nested: Any) -> Iterator[Any]:
    """The items of nested lists, one after another."""
    for value in nested:
        if isinstance(value, list | tuple):
            yield from _values(value)
        else:
            yield value


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to a value, or to each value in a list."""
    return type(value)([_each(change, item) for item in value]) if type(value) in (list, tuple) else change(value)


def _takes(operation: Any, args: Any) -> bool:
    """False where torch passed a Python number as a tensor: another overload of the operation takes numbers."""
    declared = zip(_is_tensor(operation), args, strict=False)
    return not any(is_tensor and isinstance(value, int | float | complex) for is_tensor, value in declared)


@cache
def _is_tensor(operation: Any) -> list[bool]:
    """For each argument, whether it is declared as a tensor."""
    return [str(argument.type) == "Tensor" for argument in operation._schema.arguments]


def _host_tensor(tensor: Tensor) -> Tensor:
    # An empty `out` is resized, which memory from DLPack cannot be.
    return _relabel(tensor, HOST) if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype)


def _refuse_other_device(operation: Any, args: Any, tensors: Iterable[Tensor]) -> None:
    packet = operation.overloadpacket
    indices = [id(index) for index in args[1]] if packet in TAKE_INDICES else []
    takes_scalar = _has_tag(operation, torch.Tag.pointwise) or packet in TAKE_VALUE
    for tensor in tensors:
        is_fine = tensor.device.type == NAME or id(tensor) in indices or (takes_scalar and tensor.dim() == 0)
        if not is_fine:
            raise RuntimeError(f"{operation}: expected all tensors on {NAME}, but found one on {tensor.device}")


def _with_own_stream(operation: Any, args: Any, kwargs: Any) -> Any:
    """Draws from the device's default generator, by lending its state to the CPU's."""
    own, before = torch.accel.default_generator, torch.default_generator.get_state()  # type: ignore[attr-defined]
    torch.default_generator.set_state(own.get_state())
    try:
        return operation(*args, **kwargs)
    finally:
        own.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


def _host_value(value: Any, on_host: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return on_host.get(id(value), value)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _device_value(value: Any, sources: Iterable[tuple[Tensor, Tensor]]) -> Any:
    """A result on the device: an argument, where it was written in place; a view of one, where it shares its memory."""
    if not isinstance(value, Tensor):
        return value
    for tensor, host in sources:
        if value is host:
            if value.shape != tensor.shape:  # an `out` that was empty, or a dimension squeezed in place
                memory = _relabel(value, EXTENSION).untyped_storage()
                aten.set_.source_Storage_storage_offset.redispatch(CPU, tensor, memory, 0, value.shape, value.stride())
            return tensor
        if value.untyped_storage()._cdata == host.untyped_storage()._cdata and value.dtype == tensor.dtype:
            return _view(tensor, value.shape, value.stride(), tensor.storage_offset() + value.storage_offset())
    return _relabel(value, EXTENSION)


def _view(tensor: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    return aten.as_strided.default.redispatch(CPU, tensor, size, stride, storage_offset)


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies between the devices or within one."""
    if source.device.type == NAME and target.device.type == "cpu":
        host_reads.append("copy to the CPU")
    to_host, from_host = (_with_bits(x) if x.device.type == NAME else x for x in (target, source))
    to_host.copy_(from_host)
    return target


def _with_bits(tensor: Tensor) -> Tensor:
    """On the host, and still to be conjugated or negated where it is on the device: DLPack forgets that."""
    host = _host_tensor(tensor)
    host = host.conj() if tensor.is_conj() else host
    return torch._neg_view(host) if tensor.is_neg() else host


def _item(tensor: Tensor) -> Any:
    host_reads.append("item")
    return _relabel(tensor, HOST).item()


def _convolve_backward(gradient: Tensor, x: Tensor, weight: Tensor, *options: Any) -> Any:
    return aten.convolution_backward(gradient, x, weight, [len(weight)], *options)


def _lstm_cell(from_x: Tensor, from_hidden: Tensor, cell: Tensor, *biases: Tensor | None) -> tuple[Tensor, ...]:
    gates = sum((bias for bias in biases if bias is not None), start=from_x + from_hidden)
    write, keep, value, read = gates.chunk(4, 1)
    write, keep, value, read = write.sigmoid(), keep.sigmoid(), value.tanh(), read.sigmoid()
    new = keep * cell + write * value
    return read * new.tanh(), new, torch.cat([write, keep, value, read], 1)


def _lstm_cell_backward(
    by_hidden: Tensor | None, by_new: Tensor | None, cell: Tensor, new: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    write, keep, value, read = gates.chunk(4, 1)
    by_hidden = torch.zeros_like(cell) if by_hidden is None else by_hidden
    by_cell = by_hidden * read * (1 - new.tanh() ** 2) + (0 if by_new is None else by_new)
    by_gates = torch.cat(
        [
            by_cell * value * write * (1 - write),
            by_cell * cell * keep * (1 - keep),
            by_cell * write * (1 - value**2),
            by_hidden * new.tanh() * read * (1 - read),
        ],
        1,
    )
    return by_gates, by_cell * keep, by_gates.sum(0) if has_bias else None


# Operations that torch asks only accelerators for: the CPU has none of that name.
SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    aten.convolution_overrideable.default: aten.convolution,
    aten.convolution_backward_overrideable.default: _convolve_backward,
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
}
_LIBRARY, _ATEN = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
