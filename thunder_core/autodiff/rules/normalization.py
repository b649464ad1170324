"""Normalization, and the exponentials that end in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule
from thunder_core.pytorch_internals import log_softmax_backward_data, softmax_backward_data

_aten = torch.ops.aten


@rule("torch.softmax")
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Result:
    """One kernel."""
    if _converts_in_kernel(input, dtype):
        return NotImplemented
    output = torch.softmax(input, dim, dtype)
    return output, lambda g: softmax_backward_data(g, output, dim, output.dtype)


@rule("torch.log_softmax")
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Result:
    """One kernel."""
    if _converts_in_kernel(input, dtype):
        return NotImplemented
    output = torch.log_softmax(input, dim, dtype)
    return output, lambda g: log_softmax_backward_data(g, output, dim, output.dtype)


@rule("F.layer_norm")
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Result:
    """One kernel, from the mean and the reciprocal deviation of each row."""
    output, mean, rstd = torch.native_layer_norm(input, normalized_shape, weight, bias, eps)
    wanted = [tensor is not None and tensor.requires_grad for tensor in (input, weight, bias)]

    def backward(g: Tensor) -> Any:
        found = _aten.native_layer_norm_backward.default(g, input, normalized_shape, mean, rstd, weight, bias, wanted)
        return found[0], None, found[1], found[2]

    return output, backward


@rule("F.rms_norm")
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Result:
    """On the CPU, where PyTorch composes it; elsewhere PyTorch has kernels, which autograd finds.

    With ``k = grad * weight`` and ``n`` elements in a row, the gradient is ``k * rstd - x * sum(k * x) * rstd**3 / n``:
    what autograd computes, to the bit, with the factors of a row multiplied before they are spread over it.
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


def _converts_in_kernel(input: Tensor, dtype: torch.dtype | None) -> bool:
    """The kernels for GPUs read half and write float; backward then does the contrary."""
    return input.dtype is torch.float16 and dtype is torch.float32
