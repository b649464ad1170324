"""Layer normalization: `torch.nn.functional.layer_norm`."""

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


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return _forward(True, False, *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`: the arguments, and two float32 numbers per row."""
    return _forward(True, True, *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    return _forward(False, True, *args, **kwargs)


def _forward(
    compute: bool,
    differentiated: bool,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> tuple[Tensor, tuple[Any, ...]]:
    """``cudnn_enable`` has no effect, as in PyTorch."""
    output = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    width, statistics = prod(normalized_shape), None
    if differentiated:
        shape = (2, *input.shape[: input.ndim - len(normalized_shape)])
        statistics = torch.empty(shape, dtype=torch.float32, device=input.device)
    if compute:
        normalize(input, weight, bias, eps, width, output, statistics)
    return output, (input, weight, bias, statistics, width)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of input, weight and bias, if present. Sums over rows are deterministic on the same kind of GPU."""
    input, weight, bias, statistics, width = residuals
    given = iter(wanted)
    needed = [tensor is not None and next(given) for tensor in (input, weight, bias)]
    results = gradients(input, weight, bias, statistics, cotangents[0], width, needed)
    return tuple([gradient for gradient, tensor in zip(results, (input, weight, bias)) if tensor is not None])


def check(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: Any = 1e-05,
    cudnn_enable: Any = True,
) -> bool | str:
    """The reason for declining a call, or True."""
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
    """The claim of the operation."""
    return (Claim(F.layer_norm, run, check, PAIR, variant="rows"),)
