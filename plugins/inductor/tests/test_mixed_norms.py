"""Normalizations of narrow inputs by wide parameters, as autocast calls them, partly in regions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder

WIDTH = 32
NORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "layer": lambda x, weight, bias: F.layer_norm(x, (WIDTH,), weight, bias),
    "group": lambda x, weight, bias: F.group_norm(x, 4, weight, bias),
    "batch": lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.slow
def test_statistics_go_from_kernels_to_regions_and_back(name: str) -> None:
    """Kernels of PyTorch return them in float32, its metadata functions in another dtype."""

    def forward_alone(x: Tensor, weight: Tensor, bias: Tensor, square: Tensor) -> Tensor:
        """Backward is part of a region, as two cotangents are added."""
        x = F.linear(x, square)
        return F.linear(F.linear(NORMS[name](x, weight, bias), square) + F.linear(x, square), square)

    def backward_alone(x: Tensor, weight: Tensor, bias: Tensor, square: Tensor) -> Tensor:
        """Nothing is to be fused with it if the input is frozen."""
        return NORMS[name](x.detach() * 2, weight, bias)

    torch.manual_seed(0)
    square = (torch.randn(WIDTH, WIDTH) / 6).bfloat16()
    tensors = torch.randn(8, WIDTH).add(1).bfloat16(), torch.randn(WIDTH), torch.randn(WIDTH), square
    leaves = [tensor.requires_grad_() for tensor in tensors]
    for program in (forward_alone, backward_alone):
        results = []
        for run in (program, thunder.jit(program, executors=["inductor"])):
            output = run(*leaves)
            gradients = torch.autograd.grad(output.float().square().sum(), leaves, materialize_grads=True)
            results.append([output, *gradients])
        for eager, mine in zip(*results, strict=True):
            assert mine.dtype is eager.dtype
            assert (mine - eager).abs().max() <= 0.02 * eager.abs().max()
