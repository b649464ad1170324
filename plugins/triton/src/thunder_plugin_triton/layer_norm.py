"""Layer normalisation: `torch.nn.functional.layer_norm`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton.layer_norm_calls import gradients, normalize
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.row_tiles import LARGEST


def run(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """Without what backward needs. ``cudnn_enable`` means nothing, as in PyTorch."""
    output = _output(input)
    normalize(input, weight, bias, eps, prod(normalized_shape), output, None)
    return output


def forward(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and what `backward` takes: the arguments, and two numbers of float32 for each row."""
    output, residuals = fake(input, normalized_shape, weight, bias, eps)
    normalize(input, weight, bias, eps, prod(normalized_shape), output, residuals[3])
    return output, residuals


def fake(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` without computing."""
    shape = (2, *input.shape[: input.ndim - len(normalized_shape)])
    statistics = torch.empty(shape, dtype=torch.float32, device=input.device)
    return _output(input), (input, weight, bias, statistics, prod(normalized_shape))


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of those that are there of input, weight and bias. Sums over rows have one order on one kind of GPU."""
    input, weight, bias, statistics, width = residuals
    given = iter(wanted)
    kept = [tensor is not None and next(given) for tensor in (input, weight, bias)]
    found = gradients(input, weight, bias, statistics, cotangents[0], width, kept)
    return tuple([gradient for gradient, tensor in zip(found, (input, weight, bias)) if tensor is not None])


def _output(input: Tensor) -> Tensor:
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


def check(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: Any = 1e-05,
    cudnn_enable: Any = True,
) -> bool | str:
    """What the kernels take."""
    shape = tuple(normalized_shape)
    reason = (
        need.tensors(input=input, weight=weight, bias=bias)
        or need.width(prod(shape), LARGEST)
        or need.rows(input, len(shape))
        or need.parameter("weight", weight, shape)
        or need.parameter("bias", bias, shape)
    )
    return reason or True


PAIR: Final = DerivativePair(forward, backward, fake)


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The operation."""
    return (Claim(F.layer_norm, run, check, PAIR, variant="rows"),)
