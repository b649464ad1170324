"""Quotients and remainders."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.operators.elementwise import elementwise, not_boolean
from thunder_plugin_nvfuser.promotion import FLOAT, WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten


def _divide(d: Definition, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return d.compute("truediv", x, y, dtype=computation_dtype([x, y], FLOAT))
    dtype = computation_dtype([x, y], WIDEST)
    if rounding_mode == "floor":
        return _floor_of_floats(d, x, y, dtype) if dtype.is_floating_point else _floor_of_integers(d, x, y, dtype)
    if not dtype.is_floating_point:
        return d.compute("div", x, y, dtype=dtype)  # as in C++: rounds towards zero
    return d.compute("trunc", d.compute("truediv", x, y, dtype=dtype), dtype=dtype)


def _floor_divide(d: Definition, x: Any, y: Any) -> Value:
    return _divide(d, x, y, "floor")


def _floor_of_integers(d: Definition, x: Any, y: Any, dtype: torch.dtype) -> Value:
    """The quotient rounded towards zero, minus one if there is a remainder of the other sign."""
    quotient = d.compute("div", x, y, dtype=dtype)
    return d.compute("sub", quotient, _wrong_side(d, d.compute("fmod", x, y, dtype=dtype), y, dtype), dtype=dtype)


def _floor_of_floats(d: Definition, x: Any, y: Any, dtype: torch.dtype) -> Value:
    """PyTorch's ``div_floor_floating``: uses the remainder, because the quotient may be rounded up."""

    def do(operation: str, *operands: Any) -> Value:
        return d.compute(operation, *operands, dtype=dtype)

    def test(operation: str, *operands: Any) -> Value:
        return d.compute(operation, *operands, dtype=dtype, gives=torch.bool)

    plain = do("truediv", x, y)
    remainder = do("fmod", x, y)
    exact = do("sub", do("truediv", do("sub", x, remainder), y), _wrong_side(d, remainder, y, dtype))
    floor = do("floor", exact)
    nearest = do("add", floor, test("gt", do("sub", exact, floor), 0.5))
    quotient = d.where(test("ne", exact, 0.0), nearest, do("mul", plain, 0.0), dtype)
    if not isinstance(y, Value):
        return quotient if y else plain
    return d.where(test("eq", y, 0.0), plain, quotient, dtype)


def _wrong_side(d: Definition, remainder: Value, y: Any, dtype: torch.dtype) -> Value:
    """Whether there is a remainder whose sign differs from the divisor's."""

    def test(operation: str, *operands: Any) -> Value:
        return d.compute(operation, *operands, dtype=dtype, gives=torch.bool)

    if isinstance(y, Value):
        negative = test("lt", y, 0)
        other = d.compute("ne", negative, test("lt", remainder, 0), dtype=torch.int32, gives=torch.bool)
    else:
        other = test("gt" if y < 0 else "lt", remainder, 0)
    return d.compute("logical_and", test("ne", remainder, 0), other, dtype=torch.bool)


def _number_above_zero(x: Any, y: Any, rounding_mode: str | None = None) -> str | None:
    """Declines a division of integers by the number zero: PyTorch raises, or the result is undefined."""
    if isinstance(y, int) and y == 0 and rounding_mode is not None and not x.dtype.is_floating_point:
        return "integers are divided by zero"
    return not_boolean(x, y) if rounding_mode is not None else None


ROWS: Final = (
    Row(aten.div.Tensor, _divide),
    Row(aten.div.Scalar, _divide),
    Row(aten.div.Tensor_mode, _divide, _number_above_zero),
    Row(aten.div.Scalar_mode, _divide, _number_above_zero),
    Row(aten.floor_divide.default, _floor_divide, not_boolean),
    Row(aten.floor_divide.Scalar, _floor_divide, not_boolean),
    Row(aten.remainder.Tensor, elementwise("remainder", WIDEST), not_boolean),
    Row(aten.remainder.Scalar, elementwise("remainder", WIDEST), not_boolean),
    Row(aten.remainder.Scalar_Tensor, elementwise("remainder", WIDEST), not_boolean),
    Row(aten.fmod.Tensor, elementwise("fmod", WIDEST), not_boolean),
    Row(aten.fmod.Scalar, elementwise("fmod", WIDEST), not_boolean),
)
