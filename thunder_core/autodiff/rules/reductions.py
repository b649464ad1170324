"""Reductions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule


@rule("torch.sum")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Result:
    """``sum_backward``: the cotangent of the sum for each element."""
    output = torch.sum(input, dim, keepdim, dtype=dtype)
    return output, lambda g: _spread(g.to(input.dtype), input, dim, keepdim)


@rule("torch.mean")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Result:
    """``mean_backward``; the division comes before elements are repeated, which gives the same values for less."""
    output = torch.mean(input, dim, keepdim, dtype=dtype)
    if output.numel() == 0:
        return NotImplemented
    count = input.numel() // output.numel()
    return output, lambda g: _spread((g / count).to(input.dtype), input, dim, keepdim)


def _spread(g: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The cotangent of a reduction, repeated along what was reduced."""
    if not keepdim and g.dim() and g.dim() < input.dim():
        dims = {index % input.dim() for index in ((dim,) if isinstance(dim, int) else dim)}
        g = torch.reshape(g, [1 if index in dims else size for index, size in enumerate(input.shape)])
    return g.expand(input.shape)
