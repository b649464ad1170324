"""Strides of gradients that are summed, as traces say them: those of eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder

W = torch.randn(3, 2)


def transposed_then_expanded(x: torch.Tensor) -> torch.Tensor:
    return x.sum() + (x.t() * W).sum()


def expanded_then_transposed(x: torch.Tensor) -> torch.Tensor:
    return (x.t() * W).sum() + x.sum()


def of_an_intermediate(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return (y.t() * W).sum() + (y * W.t().contiguous()).sum() + y.sum()


@pytest.mark.parametrize("program", [transposed_then_expanded, expanded_then_transposed, of_an_intermediate])
@pytest.mark.parametrize("by_columns", [False, True])
def test_strides_of_sums(program: Callable[[torch.Tensor], torch.Tensor], by_columns: bool) -> None:
    x = torch.randn(3, 2).t() if by_columns else torch.randn(2, 3)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(program(x), x)
    compiled = thunder.jit(program)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], expected)
    (gradient,) = thunder.last_backward_traces(compiled)[-1].output
    assert gradient.stride == expected.stride()
