"""Root mean square normalization: PyTorch's `torch.nn.functional.rms_norm`, and the composite."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.rms_norm_calls import gradients, normalize
from thunder_plugin_triton.row_tiles import LARGEST

EPS: Final = torch.finfo(torch.float32).eps  # PyTorch's default for all dtypes that are computed in float32


def run(input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False) -> Tensor:
    """The composite without residuals."""
    output = _output(input, weight, rounded)
    normalize(input, weight, eps, input.shape[-1], output, None, unit_offset, rounded)
    return output


def forward(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Tensor, tuple[Any, ...]]:
    """The composite, and the residuals of `backward`: the arguments, and one float32 number per row."""
    output, residuals = fake(input, weight, eps, unit_offset, rounded)
    normalize(input, weight, eps, input.shape[-1], output, residuals[2], unit_offset, rounded)
    return output, residuals


def fake(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    scales = torch.empty(input.shape[:-1], dtype=torch.float32, device=input.device)
    return _output(input, weight, rounded), (input, weight, scales, input.shape[-1], unit_offset, rounded)


def run_torch(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`torch.nn.functional.rms_norm` without residuals."""
    output = _output(input)
    normalize(input, weight, EPS if eps is None else eps, prod(normalized_shape), output, None, False, False)
    return output


def forward_torch(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """`torch.nn.functional.rms_norm`, and the residuals of `backward`."""
    output, residuals = fake_torch(input, normalized_shape, weight, eps)
    width = prod(normalized_shape)
    normalize(input, weight, EPS if eps is None else eps, width, output, residuals[2], False, False)
    return output, residuals


def fake_torch(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_torch`."""
    rows = input.shape[: input.ndim - len(normalized_shape)]
    scales = torch.empty(rows, dtype=torch.float32, device=input.device)
    return _output(input), (input, weight, scales, prod(normalized_shape), False, False)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of the input and the weight, if present. The sum over rows is deterministic on the same kind of GPU."""
    input, weight, scales, width, unit_offset, rounded = residuals
    both = (wanted[0], wanted[-1] and weight is not None)
    return gradients(input, weight, scales, cotangents[0], width, unit_offset, rounded, both)[: len(wanted)]


def _output(input: Tensor, weight: Tensor | None = None, rounded: bool = False) -> Tensor:
    dtype = torch.promote_types(input.dtype, weight.dtype) if rounded and weight is not None else input.dtype
    return torch.empty(input.shape, dtype=dtype, device=input.device)


def check(input: TensorProxy, weight: TensorProxy, *others: Any, **named: Any) -> bool | str:
    """The reason for declining a call of the composite, or True."""
    if not isinstance(input, TensorProxy) or input.ndim == 0:
        return "input has no dimensions"
    return _refusal(input, input.shape[-1:], weight) or True


def check_torch(
    input: TensorProxy, normalized_shape: Sequence[int], weight: TensorProxy | None = None, eps: Any = None
) -> bool | str:
    """The reason for declining a call of PyTorch's function, or True."""
    return _refusal(input, tuple(normalized_shape), weight) or True


def _refusal(input: TensorProxy, shape: tuple[Any, ...], weight: TensorProxy | None) -> str | None:
    return (
        need.tensors(input=input, weight=weight)
        or need.width(prod(shape), LARGEST)
        or need.rows(input, len(shape))
        or need.parameter("weight", weight, shape)
    )


PAIR: Final = DerivativePair(forward, backward, fake)
PAIR_TORCH: Final = DerivativePair(forward_torch, backward, fake_torch)


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claims of both operations."""
    return (
        Claim(composites.rms_norm, run, check, PAIR, variant="rows"),
        Claim(F.rms_norm, run_torch, check_torch, PAIR_TORCH, variant="rows"),
    )
