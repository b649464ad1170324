"""Activations that are core-ATen operators; others are decomposed into these and arithmetic."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.operators.elementwise import not_boolean
from thunder_plugin_nvfuser.promotion import WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten


def _gelu(d: Definition, x: Value, approximate: str = "none") -> Value:
    """PyTorch's formulas (``ATen/native/cuda/ActivationGeluKernel.cu``)."""
    dtype = computation_dtype([x], WIDEST)

    def do(operation: str, *operands: Any) -> Value:
        return d.compute(operation, *operands, dtype=dtype)

    if approximate == "tanh":
        cube = do("mul", do("mul", x, x), x)
        inner = do("mul", do("add", x, do("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        share = do("tanh", inner)
    else:
        share = do("erf", do("mul", x, math.sqrt(0.5)))
    return do("mul", do("mul", x, 0.5), do("add", share, 1.0))


def _elu(d: Definition, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    dtype = computation_dtype([x], WIDEST)
    exponential = d.compute("expm1", d.compute("mul", x, input_scale, dtype=dtype), dtype=dtype)
    below = d.compute("mul", exponential, alpha * scale, dtype=dtype)
    above = d.compute("mul", x, scale, dtype=dtype)
    return d.where(d.compute("gt", x, 0, dtype=dtype, gives=torch.bool), above, below, dtype)


def _hardtanh(d: Definition, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    dtype = computation_dtype([x], WIDEST)
    return d.compute("minimum", d.compute("maximum", x, min_val, dtype=dtype), max_val, dtype=dtype)


def _leaky_relu(d: Definition, x: Value, negative_slope: float = 0.01) -> Value:
    dtype = computation_dtype([x], WIDEST)
    above = d.compute("gt", x, 0, dtype=dtype, gives=torch.bool)
    return d.where(above, x, d.compute("mul", x, negative_slope, dtype=dtype), dtype)


ROWS: Final = (
    Row(aten.gelu.default, _gelu),
    Row(aten.elu.default, _elu),
    Row(aten.hardtanh.default, _hardtanh, not_boolean),
    Row(aten.leaky_relu.default, _leaky_relu),
)
