"""Softmax and the normalizations of core ATen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.operators.reductions import moments, reduce
from thunder_plugin_nvfuser.operators.shape import reshape
from thunder_plugin_nvfuser.promotion import FLOAT, computation_dtype
from thunder_plugin_nvfuser.pytorch_internals import (
    aten_log_softmax,
    aten_log_softmax_backward_data,
    aten_softmax,
    aten_softmax_backward_data,
)
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten


def _shifted(d: Definition, x: Value, dim: int, dtype: torch.dtype) -> tuple[Value, Value, Value]:
    """Differences from the maximum along ``dim``, their exponentials, and the sum of these."""
    difference = d.compute("sub", x, reduce(d, "max", x, dim, True, dtype), dtype=dtype)
    exponential = d.compute("exp", difference, dtype=dtype)
    return difference, exponential, reduce(d, "sum", exponential, dim, True, dtype)


def _softmax(d: Definition, x: Value, dim: int, half_to_float: bool) -> Value:
    dtype = computation_dtype([x], FLOAT)
    _, exponential, total = _shifted(d, x, dim, dtype)
    return d.compute("truediv", exponential, total, dtype=dtype)


def _log_softmax(d: Definition, x: Value, dim: int, half_to_float: bool) -> Value:
    dtype = computation_dtype([x], FLOAT)
    difference, _, total = _shifted(d, x, dim, dtype)
    return d.compute("sub", difference, d.compute("log", total, dtype=dtype), dtype=dtype)


def _softmax_backward(d: Definition, grad_output: Value, output: Value, dim: int, input_dtype: torch.dtype) -> Value:
    dtype = computation_dtype([grad_output, output], FLOAT)
    weighted = d.compute("mul", grad_output, output, dtype=dtype)
    total = reduce(d, "sum", weighted, dim, True, dtype)
    return d.compute("sub", weighted, d.compute("mul", output, total, dtype=dtype), dtype=dtype)


def _log_softmax_backward(
    d: Definition, grad_output: Value, output: Value, dim: int, input_dtype: torch.dtype
) -> Value:
    dtype = computation_dtype([grad_output, output], FLOAT)
    total = reduce(d, "sum", grad_output, dim, True, dtype)
    share = d.compute("mul", d.compute("exp", output, dtype=dtype), total, dtype=dtype)
    return d.compute("sub", grad_output, share, dtype=dtype)


def _standardized(d: Definition, x: Value, dims: list[int], eps: float) -> list[Value]:
    """``(x - mean) / sqrt(variance + eps)``, the mean, and ``1 / sqrt(variance + eps)``."""
    do = partial(d.compute, dtype=x.dtype)
    variance, mean = moments(d, x, dims, 0, True)
    scale = do("rsqrt", do("add", variance, eps))
    return [do("mul", do("sub", x, mean), scale), mean, scale]


def _affine(d: Definition, x: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        x = d.compute("mul", x, weight, dtype=x.dtype)
    return x if bias is None else d.compute("add", x, bias, dtype=x.dtype)


def _layer_norm(
    d: Definition, x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    x = d.cast(x, computation_dtype([x], FLOAT))
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    normal, mean, scale = _standardized(d, x, dims, eps)
    return [_affine(d, normal, weight, bias), mean, scale]


def _group_norm(
    d: Definition, x: Value, weight: Value | None, bias: Value | None, n: int, c: int, hxw: int, group: int, eps: float
) -> list[Value]:
    shape = x.shape
    grouped = reshape(d, d.cast(x, computation_dtype([x], FLOAT)), [n, group, c // group * hxw])
    normal, mean, scale = _standardized(d, grouped, [2], eps)
    per_channel = [c] + [1] * (len(shape) - 2)
    weight, bias = (None if side is None else reshape(d, side, per_channel) for side in (weight, bias))
    result = _affine(d, reshape(d, normal, shape), weight, bias)
    return [result, reshape(d, mean, [n, group]), reshape(d, scale, [n, group])]


def _more_than_one(x: Any, *args: Any) -> str | None:
    return "it normalizes single elements" if _normalized(x, args) < 2 else None


def _normalized(x: Any, args: tuple[Any, ...]) -> int:
    """The number of elements that share a mean in layer_norm or group_norm."""
    if len(args) == 4:
        count = 1
        for size in args[0]:
            count *= int(size)
        return count
    channels, area, group = args[3:6]
    return int(channels // group * area)


ROWS: Final = (
    Row(aten_softmax, _softmax),
    Row(aten_log_softmax, _log_softmax),
    Row(aten_softmax_backward_data, _softmax_backward),
    Row(aten_log_softmax_backward_data, _log_softmax_backward),
    Row(aten.native_layer_norm.default, _layer_norm, _more_than_one),
    Row(aten.native_group_norm.default, _group_norm, _more_than_one),
)
