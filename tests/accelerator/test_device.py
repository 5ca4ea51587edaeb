"""The simulated accelerator refuses what a GPU refuses, and counts what the host reads."""

from collections.abc import Callable

import pytest
import torch

from tests.accelerator.device import NAME, host_reads

MIXTURES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda device, host: device + host,
    "product": lambda device, host: device @ host.T,
    "cat": lambda device, host: torch.cat([device, host]),
    "where": lambda device, host: torch.where(device > 0, device, host),
    "gather": lambda device, host: device.gather(1, host.long()),
    "index of the host": lambda device, host: host[device.long()],
    "write in place": lambda device, host: device.clone().add_(host),
    "write of rows": lambda device, host: device.clone().index_put_((torch.tensor([0]),), host[:1]),
    "linear layer": torch.nn.functional.linear,
    "numpy": lambda device, host: device.numpy(),
}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(3, 4, generator=torch.Generator(NAME).manual_seed(0), device=NAME)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_tensors_of_the_cpu_and_of_the_device_do_not_meet(mixture: str, x: torch.Tensor) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        MIXTURES[mixture](x, torch.ones(3, 4))


def test_numbers_and_indices_of_the_cpu_are_taken_as_cuda_takes_them(x: torch.Tensor) -> None:
    assert (x * torch.tensor(2.0)).device.type == NAME
    assert torch.equal(x[torch.tensor([2, 0])].cpu(), x.cpu()[[2, 0]])


@pytest.mark.parametrize(("generator_device", "device"), [("cpu", NAME), (NAME, "cpu")])
def test_a_generator_draws_on_its_own_device_only(generator_device: str, device: str) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, generator=torch.Generator(generator_device), device=device)


def test_views_share_memory_and_gradients_flow_through_writes_into_them(x: torch.Tensor) -> None:
    gradients = []
    for leaf in (x.cpu().requires_grad_(), x.clone().requires_grad_()):
        copy = leaf.transpose(0, 1).clone()
        copy[1:3, ::2] *= 3
        copy.mT[2].mul_(5)
        copy.square().sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert gradients[1].device.type == NAME
    assert torch.equal(gradients[0], gradients[1].cpu())


def test_every_wait_of_the_host_is_counted(x: torch.Tensor) -> None:
    host_reads.clear()
    (x * 2).sum()
    assert not host_reads
    x.cpu()
    float(x.sum())
    bool(x.any())
    x[x > 0.5]
    x.tolist()
    assert len(host_reads) == 5
