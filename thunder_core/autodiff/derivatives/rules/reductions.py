"""Reductions, and RMS normalization, which PyTorch composes of them on the CPU.

These rules compute with the small, reduced values where autograd's formulas expand them first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import Result, Rule, rule


@rule("torch.sum")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Result:
    """``sum_backward``, with the cast to the dtype of ``input`` before the expansion."""
    output = torch.sum(input, dim, keepdim, dtype=dtype)
    return output, lambda g: _expanded(g.to(input.dtype), input, dim, keepdim)


@rule("torch.mean")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Result:
    """``mean_backward``, with the division before the expansion; the values are the same."""
    output = torch.mean(input, dim, keepdim, dtype=dtype)
    if output.numel() == 0:
        return NotImplemented
    count = input.numel() // output.numel()
    return output, lambda g: _expanded((g / count).to(input.dtype), input, dim, keepdim)


def _global_average(pool: Callable[..., Tensor], dims: int) -> Rule:
    """The rule of ``adaptive_avg_pool1d``, 2d or 3d for global averages, which PyTorch computes by ``mean``.

    In channels-last layouts PyTorch restrides the result in place, for which autograd's derivative copies twice.
    """

    def average(input: Tensor, output_size: Any) -> Result:
        output, shape = pool(input, output_size), input.shape[-dims:]
        if output.numel() == 0 or any(size != 1 for size in output.shape[-dims:]):
            return NotImplemented
        return output, lambda g: (g / math.prod(shape)).expand(input.shape)

    return average


for _dims, _pool in enumerate((F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), 1):
    rule(f"F.adaptive_avg_pool{_dims}d")(_global_average(_pool, _dims))


@rule("F.rms_norm")
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Result:
    """On the CPU, with 10 ops in backward instead of 13; elsewhere PyTorch has kernels, which autograd uses.

    With ``k = grad * weight``, ``r`` the reciprocal root mean square of a row and ``n`` its number of elements, the
    gradient is ``k * r - x * sum(k * x) * r**3 / n``. It equals autograd's bit by bit; the factors of a row are
    multiplied before they are expanded.
    """
    if input.device.type != "cpu" or input.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    dims = tuple(range(-len(normalized_shape), 0))
    length = math.prod(normalized_shape)
    epsilon = float(torch.finfo(input.dtype).eps if eps is None else eps)
    rstd = torch.rsqrt(torch.mean(torch.pow(input, 2), dims, True) + epsilon)
    normalized = input * rstd
    output = normalized if weight is None else normalized * weight

    def backward(g: Tensor) -> Any:
        scaled = g if weight is None else g * weight
        factor = torch.sum(scaled * input, dims, True) * torch.pow(rstd, 3) / -length
        return scaled * rstd + input * factor, None, g * normalized

    return output, backward


def _expanded(g: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The cotangent of a reduction, expanded to the shape of ``input``."""
    if not keepdim and g.dim() and g.dim() < input.dim():
        dims = {index % input.dim() for index in ((dim,) if isinstance(dim, int) else dim)}
        g = torch.reshape(g, [1 if index in dims else size for index, size in enumerate(input.shape)])
    return g.expand(input.shape)
