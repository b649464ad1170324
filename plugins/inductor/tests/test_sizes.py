"""Sizes that vary: lines that create tensors of them are in regions as all others, compiled once for several sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

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
    assert "rejects its region" not in str(thunder.explain(compiled))
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        names = [line.symbol.name for line in traces[-1].symbols]
        assert any(name.startswith("inductor_region") for name in names)
        assert not [name for name in names if "slice_backward" in name or "arange" in name or "new_zeros" in name]
