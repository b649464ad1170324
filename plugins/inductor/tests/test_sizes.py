"""Sizes that vary: lines that create tensors of them are in regions as all others, compiled once for several sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import thunder

SIZES = [(2, 8), (3, 20), (5, 7)]


def halves(x: torch.Tensor) -> torch.Tensor:
    """Each slice has a gradient of zeros and a part."""
    y = x.sin()
    return torch.cat((-y[..., 4:], y[..., :4]), -1) * y[:, 1:].sum() + y[:, -1:] * y[:, 2:3]


def positions(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    steps = torch.arange(n, device=x.device)
    mask = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
    return torch.where(mask, x @ x.mT, 0.0).exp() * steps[:, None] + x.new_zeros(x.shape[0], n, 1)


@pytest.mark.parametrize("program", [halves, positions], ids=lambda program: program.__name__)
@pytest.mark.slow
def test_tensors_that_are_created_are_in_regions(program: Callable[..., torch.Tensor]) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=["inductor"])
    for b, n in SIZES:
        x, y = (torch.linspace(-1, 1, b * n * 8).view(b, n, 8).clone().requires_grad_() for _ in range(2))
        actual, expected = compiled(x), program(y)
        torch.testing.assert_close(actual, expected)
        cotangent = torch.randn_like(expected)
        actual.backward(cotangent)
        expected.backward(cotangent)
        torch.testing.assert_close(x.grad, y.grad)
    assert thunder.cache_misses(compiled) == 1
    assert "rejects its region" not in thunder.explain(compiled).details()
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        names = [line.symbol.name for line in traces[-1].symbols]
        assert any(name.startswith("inductor_region") for name in names)
        assert not [name for name in names if "slice_backward" in name or "arange" in name or "new_zeros" in name]


NORMALIZED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w, w, True),
    "batch_norm of images": lambda x, w: F.batch_norm(x[..., None] * x[:, :1, None], None, None, w, w, True),
    "group_norm": lambda x, w: F.group_norm(x[..., None] * x[:, :1, None], 2, w, w),
    "instance_norm": lambda x, w: F.instance_norm(x[..., None] * x.T[None, :1], None, None, w, w),
    "smooth_l1_loss": lambda x, w: F.smooth_l1_loss(x * w, x * 0),
    "huber_loss": lambda x, w: F.huber_loss(x * w, x * 0),
    "mse_loss": lambda x, w: F.mse_loss(x * w, x * 0),
}
"""Functions whose gradients PyTorch decomposes into products with a quotient of sizes."""


@pytest.mark.slow
def test_gradients_that_divide_by_a_size_are_in_regions() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        losses = [function(x, weight).square().sum() for function in NORMALIZED.values()]
        return sum(losses, torch.zeros(()))

    compiled = thunder.jit(program, dynamic={"x": {0: Dim.DYNAMIC}}, executors=["inductor"])
    weight = torch.linspace(0.5, 1.5, 4).requires_grad_()
    for size in (3, 5, 8):
        x = torch.randn(size, 4, requires_grad=True)
        found, expected = (torch.autograd.grad(run(x, weight), (x, weight)) for run in (compiled, program))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert thunder.cache_misses(compiled) == 1
    declined = [reason for line in thunder.explain(compiled).decisions for _, reason in line.declined]
    assert not [reason for reason in declined if "varies" in reason or "vary" in reason]
