"""Calls of Transformer Engine: quantization of a tensor, matmul of two quantized tensors, update of delayed scales.

All uses of the library are in this module, and in ``tests/signatures.json`` with their parameters. Quantized tensors
are represented by the parts that `thunder_plugin_te.operations.quantize` returns, so that passes and memory plans see
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import transformer_engine.pytorch as te  # before its extension, which it loads
import transformer_engine_torch as extension
from torch import Tensor
from transformer_engine.pytorch.cpp_extensions import general_gemm

from thunder_plugin_te.recipes import Format, Recipe, Scaling

Parts = tuple[Tensor, ...]


def quantize(matrix: Tensor, scaling: Scaling, form: Format, columns: bool) -> Parts:
    """See `thunder_plugin_te.operations.quantize`; for a matrix."""
    quantizer = _quantizer(scaling, form, columns)
    quantized = extension.quantize(matrix, quantizer)
    if scaling == "tensor":
        return (
            (quantized._data, quantized._scale_inv, quantized._transpose)
            if columns
            else (quantized._data, quantized._scale_inv)
        )
    rows = quantized._rowwise_data, quantized._rowwise_scale_inv
    return (*rows, quantized._columnwise_data, quantized._columnwise_scale_inv) if columns else rows


def quantize_delayed(matrix: Tensor, scale: Tensor, amax: Tensor, form: Format, columns: bool) -> Parts:
    """The same for a whole tensor with a given scale.

    Args:
        scale: () or (1,), float32.
        amax: (1,); updated in place to the maximum of its value and of the largest absolute value of the tensor.
    """
    quantizer = te.Float8Quantizer(scale, amax, _dtype(form), rowwise=True, columnwise=columns)
    quantizer.internal = True
    quantized = extension.quantize(matrix, quantizer)
    return (
        (quantized._data, quantized._scale_inv, quantized._transpose)
        if columns
        else (quantized._data, quantized._scale_inv)
    )


def forward_matmul(input: Parts, weight: Parts, recipe: Recipe, dtype: torch.dtype, bias: Tensor | None) -> Tensor:
    """``input @ weight.t() + bias``, from the rows of both."""
    x = _rows(input, recipe.input, "e4m3", dtype)
    w = _rows(weight, recipe.weight, "e4m3", dtype)
    split = recipe.split_forward
    result: Tensor = general_gemm(w, x, out_dtype=dtype, bias=bias, use_split_accumulator=split)[0]
    return result


def input_gradient(gradient: Parts, weight: Parts, recipe: Recipe, dtype: torch.dtype) -> Tensor:
    """``gradient @ weight``, from the rows of the gradient and the columns of the weight."""
    dy = _rows(gradient, recipe.gradient, recipe.gradient_format, dtype)
    w = _columns(weight, recipe.weight, "e4m3", dtype)
    split = recipe.split_backward
    result: Tensor = general_gemm(w, dy, out_dtype=dtype, layout="NN", grad=True, use_split_accumulator=split)[0]
    return result


def weight_gradient(gradient: Parts, input: Parts, recipe: Recipe, dtype: torch.dtype) -> Tensor:
    """``gradient.t() @ input``, from the columns of both."""
    dy = _columns(gradient, recipe.gradient, recipe.gradient_format, dtype)
    x = _columns(input, recipe.input, "e4m3", dtype)
    split = recipe.split_backward
    result: Tensor = general_gemm(x, dy, out_dtype=dtype, layout="NT", grad=True, use_split_accumulator=split)[0]
    return result


def columns_of(parts: Parts) -> Parts:
    """The parts of a quantized tensor that are read for its columns: their bytes and scales."""
    return (parts[2], parts[3] if len(parts) > 3 else parts[1])


def update_scales(
    histories: Sequence[Tensor], scales: Sequence[Tensor], algorithm: str, form: Format, margin: int
) -> None:
    """Compute scales from the histories of amax values, and start the next entry of these, in place.

    Args:
        histories: each (steps, tensors), float32; the first entry is the step that ends.
        scales: each (tensors,).
        algorithm: ``"max"`` or ``"most_recent"``.
        form: the eight-bit format.
        margin: scales are divided by two to this power.
    """
    latest = torch.cat([history[0] for history in histories])
    extension.fused_amax_and_scale_update_after_reduction(
        latest, list(histories), list(scales), algorithm, _dtype(form), float(margin)
    )


@cache
def _quantizer(scaling: Scaling, form: Format, columns: bool) -> Any:
    """A quantizer without state, which all tensors can share."""
    if scaling == "tensor":
        quantizer: Any = te.Float8CurrentScalingQuantizer(
            _dtype(form), device=torch.device("cuda"), rowwise=True, columnwise=columns
        )
    else:
        dimensions = 1 if scaling == "1x128" else 2
        quantizer = te.Float8BlockQuantizer(
            _dtype(form), rowwise=True, columnwise=columns, force_pow_2_scales=True, block_scaling_dim=dimensions
        )
    quantizer.internal = True  # a plain object that holds tensors
    return quantizer


@cache
def _dtype(form: Format) -> Any:
    return te.DType.kFloat8E4M3 if form == "e4m3" else te.DType.kFloat8E5M2


def _rows(parts: Parts, scaling: Scaling, form: Format, dtype: torch.dtype) -> Any:
    data, inverse = parts[:2]
    if scaling == "tensor":
        return te.Float8TensorStorage(data=data, fp8_scale_inv=inverse, fp8_dtype=_dtype(form), fake_dtype=dtype)
    return _blocks((data, inverse, None, None), scaling, form, dtype)


def _columns(parts: Parts, scaling: Scaling, form: Format, dtype: torch.dtype) -> Any:
    data, inverse = parts
    if scaling == "tensor":
        return te.Float8TensorStorage(
            data=None, data_transpose=data, fp8_scale_inv=inverse, fp8_dtype=_dtype(form), fake_dtype=dtype
        )
    return _blocks((None, None, data, inverse), scaling, form, dtype)


def _blocks(tensors: tuple[Tensor | None, ...], scaling: Scaling, form: Format, dtype: torch.dtype) -> Any:
    """Rows and columns, bytes and scales of each."""
    return te.Float8BlockwiseQTensorStorage(*tensors, _dtype(form), None, scaling == "128x128", fake_dtype=dtype)
