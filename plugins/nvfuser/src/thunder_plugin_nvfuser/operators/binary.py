"""Elementwise functions of two tensors, or of a tensor and a number; comparisons; ``where``."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.operators.elementwise import comparison, elementwise, logical, not_boolean
from thunder_plugin_nvfuser.promotion import FLOAT, WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten

COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")


def _sum(operation: str, boolean: str) -> Any:
    def build(d: Definition, x: Any, y: Any, alpha: float = 1) -> Value:
        dtype = computation_dtype([x, y], WIDEST)
        if dtype is torch.bool:
            return d.compute(boolean, x, y, dtype=dtype) if alpha else d.cast(x, dtype)
        if alpha != 1:
            y = d.compute("mul", y, alpha, dtype=dtype) if isinstance(y, Value) else y * alpha
        return d.compute(operation, x, y, dtype=dtype)

    return build


def _xor(d: Definition, x: Any, y: Any) -> Value:
    dtype = computation_dtype([x, y], WIDEST)
    if dtype is torch.bool:
        return d.compute("ne", x, y, dtype=torch.int32, gives=torch.bool)
    return d.compute("bitwise_xor", x, y, dtype=dtype)


def _logical_xor(d: Definition, x: Value, y: Value) -> Value:
    x, y = (d.cast(side, torch.bool) for side in (x, y))
    return d.compute("ne", x, y, dtype=torch.int32, gives=torch.bool)


def _extremum_of_numbers(operation: str) -> Any:
    """The extremum of numbers, which ignores NaN in one operand."""

    def build(d: Definition, x: Value, y: Value) -> Value:
        dtype = computation_dtype([x, y], WIDEST)
        if not dtype.is_floating_point:
            return d.compute(operation, x, y, dtype=torch.int32 if dtype is torch.bool else dtype)
        missing_x, missing_y = (d.compute("isnan", side, dtype=dtype, gives=torch.bool) for side in (x, y))
        extremum = d.compute(operation, x, y, dtype=dtype)
        return d.where(missing_x, y, d.where(missing_y, x, extremum, dtype), dtype)

    return build


def _clamp(d: Definition, x: Value, min: Any = None, max: Any = None) -> Value:
    """Propagates NaN, like nvFuser's maximum and minimum."""
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype = computation_dtype([x, *bounds], WIDEST)
    if min is not None:
        x = d.compute("maximum", x, min, dtype=dtype)
    return d.compute("minimum", x, max, dtype=dtype) if max is not None else x


def _where(d: Definition, condition: Value, chosen: Any, other: Any) -> Value:
    return d.where(condition, chosen, other, computation_dtype([chosen, other], WIDEST))


def _pow_check(base: Any, exponent: Any) -> str | None:
    if not_boolean(base, exponent):
        return "it computes with bools"
    operands = [getattr(side, "dtype", type(side)) for side in (base, exponent)]
    floating = [kind is float or getattr(kind, "is_floating_point", False) for kind in operands]
    if not any(floating) and not isinstance(exponent, int):
        return "powers of integers with tensors as exponents"
    return None


_both: Final = ("Tensor", "Scalar")


def _rows(packet: Any, overloads: tuple[str, ...], build: Any, check: Any = None) -> list[Row]:
    return [Row(getattr(packet, name), build, check) for name in overloads]


ROWS: Final = (
    *_rows(aten.add, _both, _sum("add", "logical_or")),
    *_rows(aten.sub, _both, _sum("sub", ""), not_boolean),
    *_rows(aten.mul, _both, elementwise("mul", WIDEST, "logical_and")),
    *_rows(aten.maximum, ("default",), elementwise("maximum", WIDEST, "logical_or")),
    *_rows(aten.minimum, ("default",), elementwise("minimum", WIDEST, "logical_and")),
    *_rows(aten.fmax, ("default",), _extremum_of_numbers("maximum")),
    *_rows(aten.fmin, ("default",), _extremum_of_numbers("minimum")),
    *_rows(aten.atan2, ("default",), elementwise("atan2", FLOAT)),
    *_rows(aten.pow, ("Tensor_Tensor", "Tensor_Scalar", "Scalar"), elementwise("pow", WIDEST), _pow_check),
    *[row for name in COMPARISONS for row in _rows(getattr(aten, name), _both, comparison(name))],
    Row(aten.logical_and.default, logical("logical_and")),
    Row(aten.logical_or.default, logical("logical_or")),
    Row(aten.logical_xor.default, _logical_xor),
    *_rows(aten.bitwise_and, _both, elementwise("bitwise_and", WIDEST, "logical_and")),
    *_rows(aten.bitwise_or, _both, elementwise("bitwise_or", WIDEST, "logical_or")),
    *_rows(aten.bitwise_xor, _both, _xor),
    *_rows(aten.clamp, ("default", "Tensor"), _clamp, not_boolean),
    *_rows(aten.where, ("self", "ScalarOther", "ScalarSelf", "Scalar"), _where),
)
