"""Linear layers with a frozen quantized weight, whose backward dequantizes the weight again.

PyTorch's autograd would save the dequantized weights, as much memory as before they were quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from thunder_plugin_quantization.library import (
    Float8Tensor,
    Int8Tensor,
    IntxUnpackedToInt8Tensor,
    NF4Tensor,
    quantization,
)

Dequantize = Callable[..., Tensor]


def frozen_linear(input: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.linear` for a quantized weight that `why_no_gradients` has no objection to.

    Args:
        input: (..., in features).
        weight: (out features, in features); gets no gradient.
    """
    dequantize, tensors = _parts(weight)
    dequantize = partial(_in_dtype, dequantize, input.dtype)
    if torch.compiler.is_compiling():
        # A region that backward computes again, of which Thunder keeps what backward needs: the dequantization. It is
        # traced, as an autograd.Function is not, so that executors can fuse it.
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        result: Tensor = checkpoint(_linear, input, dequantize, *tensors, **options)
    else:
        result = _FrozenLinear.apply(input, dequantize, *tensors)
    return result


def why_no_gradients(weight: Tensor) -> str | None:
    """Why gradients do not pass through a layer with a quantized weight to its input; None if they do."""
    if isinstance(weight, NF4Tensor):
        return None
    if isinstance(weight, IntxUnpackedToInt8Tensor):
        quantized = weight.activation_quantization is not None
    elif isinstance(weight, Int8Tensor | Float8Tensor):
        quantized = weight.act_quant_kwargs is not None
    else:
        return f"no gradients are known to pass through a weight of class {type(weight).__name__}"
    return "gradients do not pass through inputs that are quantized" if quantized else None


def _linear(input: Tensor, dequantize: Dequantize, *tensors: Tensor) -> Tensor:
    return F.linear(input, dequantize(*tensors))


class _FrozenLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, dequantize: Dequantize, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.dequantize, ctx.dtype = dequantize, input.dtype
        return _linear(input, dequantize, *tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tensors = ctx.saved_tensors
        weight = ctx.dequantize(*tensors).to(gradient.dtype)  # under autocast, that of the matmul in forward
        return (gradient @ weight).to(ctx.dtype), None, *[None for _ in tensors]


def _in_dtype(dequantize: Dequantize, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
    return dequantize(*tensors).to(dtype)


def _parts(weight: Any) -> tuple[Dequantize, tuple[Tensor, ...]]:
    """How to dequantize a weight of a class that `why_no_gradients` allows, and the tensors that it holds."""
    if isinstance(weight, NF4Tensor):
        tensors = weight.quantized_data, weight.quantized_scalers, weight.quantization_factor, weight.scaler_mean
        return partial(_nf4, tuple(weight.shape), weight.block_size, weight.scaler_block_size), (*tensors, weight.nf4)
    if isinstance(weight, Float8Tensor):
        return partial(_float8, weight.dtype), (weight.qdata, weight.scale)
    block, dtype = tuple(weight.block_size), weight.dtype
    if weight.zero_point is None:
        return partial(_int, block, dtype), (weight.qdata, weight.scale)
    return partial(_int, block, dtype), (weight.qdata, weight.scale, weight.zero_point)


def _nf4(
    shape: tuple[int, int],
    block: int,
    scales: int,
    data: Tensor,
    scale: Tensor,
    factor: Tensor,
    mean: Tensor,
    table: Tensor,
) -> Tensor:
    """The weight of an `NF4Tensor`: two values in a byte, the first in its upper half; see `get_original_weight`."""
    values = torch.stack([table[(data >> 4).long()], table[(data & 15).long()]], -1).reshape(-1, block)
    scale = (scale.view(-1, scales) / factor.unsqueeze(-1)).flatten().to(table.dtype) + mean
    return (values * scale.unsqueeze(-1)).reshape(shape)


def _float8(dtype: torch.dtype, data: Tensor, scale: Tensor) -> Tensor:
    """The weight of a `Float8Tensor` with a scale for the tensor, for each row, or for each group in a row."""
    wide = data.to(torch.float32)
    if scale.numel() == 1 or scale.shape[-1] == 1:
        return (wide * scale).to(dtype)
    return (wide.view(*scale.shape, -1) * scale.unsqueeze(-1)).reshape(data.shape).to(dtype)


def _int(block: tuple[int, ...], dtype: torch.dtype, data: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The weight of an `Int8Tensor` or an `IntxUnpackedToInt8Tensor`."""
    result: Tensor = quantization.dequantize_affine(data, block, scale, zero, torch.int8, output_dtype=dtype)
    return result
