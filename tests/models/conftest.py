"""bfloat16 autocast on the CPU, on every CPU."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
# All that autocast computes in bfloat16 reaches the CPU as one of these.
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot}
PRODUCTS |= {aten.convolution, aten.convolution_backward}


class EmulatedProducts(TorchDispatchMode):
    """Computes products of bfloat16 tensors in float32 and rounds the results to bfloat16.

    The CPU's own bfloat16 products end the process with "Illegal instruction" on some virtual machines that
    list amx_bf16. Modes of this kind see an operation after autocast has cast its inputs, so what autocast does
    to a model is tested as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_half = any(isinstance(arg, Tensor) and arg.dtype == torch.bfloat16 for arg in args)
        if not is_half or func.overloadpacket not in PRODUCTS:
            return func(*args, **kwargs)
        self.count += 1
        args, kwargs = tree_map_only(Tensor, Tensor.float, (args, kwargs))
        return tree_map_only(Tensor, Tensor.bfloat16, func(*args, **kwargs))


@pytest.fixture
def bfloat16_autocast() -> Callable[[], AbstractContextManager[EmulatedProducts]]:
    """Opens an autocast to bfloat16 whose products are emulated, and counts them."""

    @contextmanager
    def open_autocast() -> Iterator[EmulatedProducts]:
        with EmulatedProducts() as products, torch.autocast("cpu", torch.bfloat16):
            yield products

    return open_autocast
