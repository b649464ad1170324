"""Transformer Engine's calls: quantization of a tensor, product of two quantized ones, update of delayed scales.

Everything that is used of the library is named here, and in ``tests/signatures.json`` with its parameters. Quantized
tensors are taken apart: into what `thunder_plugin_te.operations.quantize` says, which passes and plans of memory see.
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
    """See `thunder_plugin_te.operations.quantize`; of a tensor of two dimensions."""
    quantizer = _quantizer(scaling, form, columns)
    made = extension.quantize(matrix, quantizer)
    if scaling == "tensor":
        return (made._data, made._scale_inv, made._transpose) if columns else (made._data, made._scale_inv)
    rows = made._rowwise_data, made._rowwise_scale_inv
    return (*rows, made._columnwise_data, made._columnwise_scale_inv) if columns else rows


def quantize_delayed(matrix: Tensor, scale: Tensor, amax: Tensor, form: Format, columns: bool) -> Parts:
    """The same of a whole tensor by a given scale.

    Args:
        scale: () or (1,), of float32.
        amax: (1,); becomes the largest absolute value of the tensor if that is larger.
    """
    quantizer = te.Float8Quantizer(scale, amax, _dtype(form), rowwise=True, columnwise=columns)
    quantizer.internal = True
    made = extension.quantize(matrix, quantizer)
    return (made._data, made._scale_inv, made._transpose) if columns else (made._data, made._scale_inv)


def forward_product(input: Parts, weight: Parts, recipe: Recipe, dtype: torch.dtype, bias: Tensor | None) -> Tensor:
    """``input @ weight.t() + bias``, of the rows of both."""
    x = _rows(input, recipe.input, "e4m3", dtype)
    w = _rows(weight, recipe.weight, "e4m3", dtype)
    split = recipe.split_forward
    result: Tensor = general_gemm(w, x, out_dtype=dtype, bias=bias, use_split_accumulator=split)[0]
    return result


def input_gradient(gradient: Parts, weight: Parts, recipe: Recipe, dtype: torch.dtype) -> Tensor:
    """``gradient @ weight``, of the gradient's rows; ``weight`` has its columns alone."""
    dy = _rows(gradient, recipe.gradient, recipe.gradient_format, dtype)
    w = _columns(weight, recipe.weight, "e4m3", dtype)
    split = recipe.split_backward
    result: Tensor = general_gemm(w, dy, out_dtype=dtype, layout="NN", grad=True, use_split_accumulator=split)[0]
    return result


def weight_gradient(gradient: Parts, input: Parts, recipe: Recipe, dtype: torch.dtype) -> Tensor:
    """``gradient.t() @ input``; both have their columns alone."""
    dy = _columns(gradient, recipe.gradient, recipe.gradient_format, dtype)
    x = _columns(input, recipe.input, "e4m3", dtype)
    split = recipe.split_backward
    result: Tensor = general_gemm(x, dy, out_dtype=dtype, layout="NT", grad=True, use_split_accumulator=split)[0]
    return result


def columns_of(parts: Parts) -> Parts:
    """What is needed of a quantized tensor where its columns are read: their bytes and scales."""
    return (parts[2], parts[3] if len(parts) > 3 else parts[1])


def update_scales(
    histories: Sequence[Tensor], scales: Sequence[Tensor], algorithm: str, form: Format, margin: int
) -> None:
    """Make scales of the histories of largest values, and begin the next entry of these, in place.

    Args:
        histories: each (steps, tensors) of float32; the first entry is the step that ends.
        scales: each (tensors,).
        algorithm: ``"max"`` or ``"most_recent"``.
        margin: scales are divided by two to this power.
    """
    latest = torch.cat([history[0] for history in histories])
    extension.fused_amax_and_scale_update_after_reduction(
        latest, list(histories), list(scales), algorithm, _dtype(form), float(margin)
    )


@cache
def _quantizer(scaling: Scaling, form: Format, columns: bool) -> Any:
    """Without state, so that all tensors may share it."""
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
    """Rows and columns, bytes and scales each."""
    return te.Float8BlockwiseQTensorStorage(*tensors, _dtype(form), None, scaling == "128x128", fake_dtype=dtype)
