"""Elementwise functions of one tensor."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.operators.elementwise import elementwise, logical, not_boolean, rounding
from thunder_plugin_nvfuser.promotion import FLOAT, WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten

FLOATING: Final = (
    ("acos", aten.acos),
    ("acosh", aten.acosh),
    ("asin", aten.asin),
    ("asinh", aten.asinh),
    ("atan", aten.atan),
    ("atanh", aten.atanh),
    ("cos", aten.cos),
    ("cosh", aten.cosh),
    ("erf", aten.erf),
    ("erfc", aten.erfc),
    ("erfinv", aten.erfinv),
    ("exp", aten.exp),
    ("exp2", aten.exp2),
    ("expm1", aten.expm1),
    ("lgamma", aten.lgamma),
    ("log", aten.log),
    ("log10", aten.log10),
    ("log1p", aten.log1p),
    ("log2", aten.log2),
    ("reciprocal", aten.reciprocal),
    ("rsqrt", aten.rsqrt),
    ("sigmoid", aten.sigmoid),
    ("sin", aten.sin),
    ("sinh", aten.sinh),
    ("sqrt", aten.sqrt),
    ("tan", aten.tan),
    ("tanh", aten.tanh),
)
"""The results are floating-point; integers are cast first."""

ROUNDING: Final = (("ceil", aten.ceil), ("floor", aten.floor), ("round", aten.round), ("trunc", aten.trunc))

TESTS: Final = (
    ("isnan", aten.isnan),
    ("isinf", aten.isinf),
    ("isposinf", aten.isposinf),
    ("isneginf", aten.isneginf),
    ("isfinite", aten.isfinite),
)
"""Tests of floating-point numbers; integers are cast first."""


def _test(operation: str) -> Any:
    def build(d: Definition, x: Value) -> Value:
        return d.compute(operation, x, dtype=computation_dtype([x], FLOAT), gives=torch.bool)

    return build


def _relu(d: Definition, x: Value) -> Value:
    """nvFuser's relu converts integers to floating point."""
    dtype = computation_dtype([x], WIDEST)
    return d.compute("relu", x, dtype=dtype) if dtype.is_floating_point else d.compute("maximum", x, 0, dtype=dtype)


def _sign(d: Definition, x: Value) -> Value:
    """The sign of NaN is 0 in PyTorch and -1 in nvFuser."""
    if x.dtype is torch.bool:
        return x
    dtype = computation_dtype([x], WIDEST)
    above, below = (d.compute(name, x, 0, dtype=dtype, gives=torch.bool) for name in ("gt", "lt"))
    return d.compute("sub", above, below, dtype=torch.int32 if not dtype.is_floating_point else dtype)


def _bitwise_not(d: Definition, x: Value) -> Value:
    return d.compute("logical_not" if x.dtype is torch.bool else "bitwise_not", x, dtype=x.dtype)


def _signbit(d: Definition, x: Value) -> Value:
    """For floating-point numbers; true for -0.0."""
    if not x.dtype.is_floating_point:
        return d.compute("lt", x, 0, dtype=torch.int64, gives=torch.bool)
    dtype = computation_dtype([x], WIDEST)
    return d.compute("signbit", x, dtype=dtype)


ROWS: Final = (
    *[Row(packet.default, elementwise(name, FLOAT)) for name, packet in FLOATING],
    *[Row(packet.default, rounding(name)) for name, packet in ROUNDING],
    *[Row(packet.default, _test(name)) for name, packet in TESTS],
    Row(aten.abs.default, elementwise("abs", WIDEST), not_boolean),
    Row(aten.neg.default, elementwise("neg", WIDEST), not_boolean),
    Row(aten.relu.default, _relu, not_boolean),
    Row(aten.sign.default, _sign),
    Row(aten.signbit.default, _signbit),
    Row(aten.bitwise_not.default, _bitwise_not),
    Row(aten.logical_not.default, logical("logical_not")),
)
