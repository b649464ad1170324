"""SyncBatchNorm in training, in two processes: as BatchNorm of the whole batch.

PyTorch's kernels for it exist on accelerators alone, and the module refuses other devices. So the function that the
module calls is called here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder_testing.processes import process_suite

Function: Any = torch.nn.modules._functions.SyncBatchNorm


class Synchronized(nn.BatchNorm2d):
    """A BatchNorm that calls the function of SyncBatchNorm, as SyncBatchNorm does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        group = dist.group.WORLD
        arguments = (self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.momentum)
        result: torch.Tensor = Function.apply(x, *arguments, group, dist.get_world_size(group))
        return result


class Network(nn.Module):
    def __init__(self, kind: type[nn.BatchNorm2d], **options: Any) -> None:
        super().__init__()
        self.first, self.second = kind(3, **options), kind(3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)) * x)


def data(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").double().to(torch.get_default_device())


def networks(**options: Any) -> tuple[Network, Network]:
    """One that is to be given the whole batch, and one for a rank's part."""
    pair = Network(nn.BatchNorm2d, **options).double(), Network(Synchronized, **options).double()
    with torch.no_grad():
        for seed, parameter in enumerate(pair[0].parameters()):
            parameter.copy_(data(*parameter.shape, seed=seed))
    pair[1].load_state_dict(pair[0].state_dict())
    return pair


def compare(sizes: tuple[int, int], prepare: Callable[[Network], Any] = lambda model: None, **options: Any) -> None:
    whole, part = networks(**options)
    prepare(whole)
    prepare(part)
    compiled = thunder.jit(part)
    for step in range(3):
        batch = data(sum(sizes), 3, 2, 2, seed=step)
        first = sizes[0] if dist.get_rank() else 0
        own = batch[first : first + sizes[dist.get_rank()]].clone().requires_grad_()
        batch.requires_grad_()
        expected, found = whole(batch), compiled(own)
        assert expected.grad_fn is not None
        expected.sin().sum().backward()
        found.sin().sum().backward()
        close(found, expected[first : first + len(own)])
        close(own.grad, batch.grad[first : first + len(own)])
        for theirs, ours in zip(whole.buffers(), part.buffers(), strict=True):
            if theirs.is_floating_point():
                close(ours, theirs)
        for theirs, ours in zip(whole.parameters(), part.parameters(), strict=True):
            if theirs.requires_grad:
                dist.all_reduce(ours.grad)  # each rank has the part of its elements, as in eager
                close(ours.grad, theirs.grad)
                theirs.grad = ours.grad = None


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def freeze(model: Network) -> None:
    model.first.weight.requires_grad_(False)
    model.second.bias.requires_grad_(False)


def in_half_precision() -> None:
    _, part = networks()
    part = part.float()
    x = data(4, 3, 2, 2, seed=dist.get_rank()).bfloat16().requires_grad_()
    y = x.detach().float().requires_grad_()
    result, exact = thunder.jit(part.first)(x), thunder.jit(part.first)(y)
    assert result.dtype is torch.bfloat16
    result.sum().backward()
    torch.testing.assert_close(result.float(), exact, rtol=0.01, atol=0.01)
    assert x.grad.dtype is torch.bfloat16


def without_gradients() -> None:
    whole, part = networks()
    batch = data(4, 3, 2, 2, seed=0)
    first = 2 * dist.get_rank()
    with torch.no_grad():
        close(thunder.jit(part)(batch[first : first + 2]), whole(batch)[first : first + 2])


def the_module_on_the_cpu() -> None:
    """As in eager."""
    module = nn.SyncBatchNorm(3)
    for function in (module, thunder.jit(module)):
        with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
            function(torch.ones(2, 3, 2, 2))
    module.eval()
    assert torch.equal(thunder.jit(module)(torch.ones(2, 3, 2, 2)), module(torch.ones(2, 3, 2, 2)))


CASES = {
    "even": partial(compare, (3, 3)),
    "uneven": partial(compare, (1, 4)),
    "empty_on_the_first_rank": partial(compare, (0, 4)),
    "empty_on_the_last_rank": partial(compare, (4, 0)),
    "not_affine": partial(compare, (2, 3), affine=False),
    "without_statistics": partial(compare, (2, 3), track_running_stats=False),
    "frozen": partial(compare, (2, 3), freeze),
    "in_half_precision": in_half_precision,
    "without_gradients": without_gradients,
    "the_module_on_the_cpu": the_module_on_the_cpu,
}


test_two_processes = pytest.mark.slow(process_suite(__name__, CASES, of_gloo=("the_module_on_the_cpu",)))
