"""Universal functions of NumPy: a table of PyTorch's functions, and NumPy's own choice of dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from thunder_plugin_numpy.coverage import not_covered, numpy_errors, words
from thunder_plugin_numpy.dtypes import NUMPY, TORCH, is_covered
from thunder_plugin_numpy.operands import is_traced, new_copy, tensor_of
from thunder_plugin_numpy.traced_array import TracedArray, cast

Tensor = torch.Tensor


def _divided(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A division: NumPy returns 0 for integers that are divided by 0."""

    def divide(x: Tensor, y: Tensor) -> Tensor:
        if x.is_floating_point():
            return function(x, y)
        is_zero = y == 0
        return torch.where(is_zero, torch.zeros((), dtype=x.dtype), function(x, torch.where(is_zero, 1, y).to(x.dtype)))

    return divide


def _power(x: Tensor, y: Tensor) -> Tensor:
    if not x.is_floating_point() and not x.is_complex() and y.dtype is not torch.uint8 and bool((y < 0).any()):
        raise ValueError("Integers to negative integer powers are not allowed.")
    return torch.pow(x, y)


def _cbrt(x: Tensor) -> Tensor:
    return torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    if not x.ndim or not y.ndim:
        raise ValueError("matmul: Input operand does not have enough dimensions")
    if x.dtype is torch.bool:
        return torch.matmul(x.to(torch.int64), y.to(torch.int64)) != 0
    return torch.matmul(x, y)


def _logical(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *operands: function(*[operand != 0 for operand in operands])


def _order(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function without a form for complex numbers in PyTorch."""

    def ordered(*operands: Tensor) -> Tensor:
        if operands[0].is_complex():
            raise not_covered(f"numpy.{function.__name__} of complex numbers is not covered")
        return function(*operands)

    return ordered


def _unless_bool(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: x if x.dtype is torch.bool else function(x)


_UNARY: Final = {
    **{
        name: getattr(torch, name)
        for name in sorted(
            words(
                """
    sin cos tan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt square isfinite isinf isnan signbit deg2rad
    rad2deg negative positive reciprocal
    """
            )
        )
    },
    "absolute": lambda x: x if x.dtype is torch.bool else torch.abs(x),
    "fabs": torch.abs,
    "arcsin": torch.asin,
    "arccos": torch.acos,
    "arctan": torch.atan,
    "arcsinh": torch.asinh,
    "arccosh": torch.acosh,
    "arctanh": torch.atanh,
    "degrees": torch.rad2deg,
    "radians": torch.deg2rad,
    "cbrt": _cbrt,
    **{name: _unless_bool(getattr(torch, name)) for name in ("floor", "ceil", "trunc")},
    "rint": lambda x: torch.complex(x.real.round(), x.imag.round()) if x.is_complex() else torch.round(x),
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sgn(x)),
    "conjugate": torch.conj_physical,
    "invert": torch.bitwise_not,
    "logical_not": lambda x: x == 0,
}
_BINARY: Final = {
    **{
        name: getattr(torch, name)
        for name in sorted(
            words(
                """
    add subtract multiply bitwise_and bitwise_or bitwise_xor copysign nextafter logaddexp logaddexp2 hypot gcd lcm
    """
            )
        )
    },
    "heaviside": lambda x, y: torch.where(torch.isnan(x), x, torch.heaviside(x, y)),
    "divide": torch.true_divide,
    "floor_divide": _divided(torch.floor_divide),
    "remainder": _divided(torch.remainder),
    "fmod": _divided(torch.fmod),
    "power": _power,
    "float_power": torch.pow,
    "arctan2": torch.atan2,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "equal": torch.eq,
    "not_equal": torch.ne,
    **{
        name: _order(getattr(torch, name))
        for name in sorted(
            words(
                """
    less less_equal greater greater_equal
    """
            )
        )
    },
    **{
        name: _order(getattr(torch, name))
        for name in sorted(
            words(
                """
    maximum minimum fmax fmin
    """
            )
        )
    },
    "logical_and": _logical(torch.logical_and),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    "matmul": _matmul,
}
_SEVERAL: Final[dict[str, Callable[..., Any]]] = {
    "divmod": lambda x, y: (_BINARY["floor_divide"](x, y), _BINARY["remainder"](x, y)),
    "modf": lambda x: (
        torch.where(torch.isinf(x), torch.copysign(torch.zeros_like(x), x), x - torch.trunc(x)),
        torch.trunc(x),
    ),
}
UFUNCS: Final[dict[str, Callable[..., Any]]] = {**_UNARY, **_BINARY, **_SEVERAL}
"""The covered universal functions, by name: functions of tensors of the dtypes that NumPy chooses."""
_WITH_NUMBERS: Final = words(
    """
    add subtract multiply divide bitwise_and bitwise_or bitwise_xor equal not_equal less less_equal greater
    greater_equal left_shift right_shift
    """
)
"""Functions of PyTorch that take a Python number as the second operand and compute in the dtype of the first."""
_REDUCTIONS: Final = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "amax",
    "minimum": "amin",
    "logical_and": "all",
    "logical_or": "any",
}
_SCANS: Final = {"add": "cumsum", "multiply": "cumprod"}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A call of a universal function or of one of its methods, with an array of the program among its arguments.

    Raises:
        UnsupportedError: the function, its method, an option or a dtype is not covered.
        TypeError: NumPy has no loop for the dtypes, or may not cast the result to the dtype of ``out``.
    """
    name = ufunc.__name__
    if method == "__call__":
        return _called(ufunc, inputs, **options)
    array, *rest = inputs
    if method == "reduce" and name in _REDUCTIONS:
        axis = options.pop("axis", rest.pop(0) if rest else 0)
        return getattr(np, _REDUCTIONS[name])(array, axis=axis, **_with_out(options))
    if method == "accumulate" and name in _SCANS:
        axis = options.pop("axis", rest.pop(0) if rest else 0)
        return getattr(np, _SCANS[name])(array, axis=axis, **_with_out(options))
    if method == "outer" and name in _BINARY and name != "matmul":
        left, right = [each if is_traced(each) else TracedArray(tensor_of(each)) for each in inputs]
        return ufunc(left.reshape(*left.shape, *[1] * right.ndim), right, **options)
    raise not_covered(f"numpy.{name}.{method} is not covered")


def _with_out(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a reduction as the function of NumPy takes them: ``out`` is no tuple."""
    out = options.get("out")
    return {**options, "out": out[0]} if isinstance(out, tuple) else options


def _called(
    ufunc: np.ufunc,
    inputs: tuple[Any, ...],
    *,
    out: tuple[Any, ...] | None = None,
    where: Any = True,
    dtype: Any = None,
    casting: Any = "same_kind",
    order: str = "K",
    subok: bool = True,
    signature: Any = None,
    **unknown: Any,
) -> Any:
    name = ufunc.__name__
    function = UFUNCS.get(name)
    if function is None:
        raise not_covered(f"numpy.{name} is not covered")
    if unknown or signature is not None or order not in ("K", "A"):
        given = [*unknown, *(["signature"] if signature is not None else []), *(["order"] if order != "K" else [])]
        raise not_covered(f"numpy.{name} with {', '.join(given)} is not covered")
    loop = _loop(ufunc, inputs, dtype)
    for each in loop:
        if not is_covered(each):
            raise not_covered(f"numpy.{name} computes with {each}, with which PyTorch does not compute")
    operands = [_operand(value, TORCH[each], name) for value, each in zip(inputs, loop, strict=False)]
    if len(operands) == 2 and name in _WITH_NUMBERS and _is_number(inputs[1]) and loop[0] == loop[1]:
        operands[1] = inputs[1]
    if loop[0] == np.float16:  # NumPy computes in float32, too
        if name == "nextafter":
            raise not_covered("numpy.nextafter of float16 is not covered")
        operands = [each.float() if getattr(each, "dtype", None) is torch.float16 else each for each in operands]
    with numpy_errors(name):
        result = function(*operands)
    results = result if isinstance(result, tuple) else (result,)
    results = tuple([cast(each, TORCH[kind]) for each, kind in zip(results, loop[ufunc.nin :], strict=True)])
    tensors = [value.tensor for value in inputs if is_traced(value)]
    results = tuple([new_copy(each, tensors) for each in results])
    outs = out or (None,) * len(results)
    written = [_stored(each, to, where, casting, name) for each, to in zip(results, outs, strict=True)]
    return written[0] if len(written) == 1 else tuple(written)


def _loop(ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: Any) -> tuple[np.dtype[Any], ...]:
    """The dtypes in which NumPy computes: those of the operands, then those of the results."""
    given = tuple([_kind(value) for value in inputs])
    options: dict[str, Any] = (
        {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[np.dtype(dtype)] * ufunc.nout)}
    )
    return ufunc.resolve_dtypes((*given, *[None] * ufunc.nout), **options)


def _kind(value: Any) -> Any:
    """The dtype of an operand; for a number of Python its class, as NumPy's promotion takes it."""
    if is_traced(value):
        return value.dtype
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype
    if isinstance(value, bool):
        return np.dtype(bool)
    if _is_number(value):
        return next(kind for kind in (int, float, complex) if isinstance(value, kind))
    if isinstance(value, torch.Tensor):
        return NUMPY[value.dtype]
    return NUMPY[tensor_of(value).dtype]


def _operand(value: Any, dtype: torch.dtype, name: str) -> Tensor:
    is_integer = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    limits = torch.iinfo(dtype) if is_integer and isinstance(value, int) and not isinstance(value, bool) else None
    if limits is not None and not limits.min <= value <= limits.max:
        if name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
            raise not_covered(f"numpy.{name} of {NUMPY[dtype]} and {value}, which is outside of its range")
        raise OverflowError(f"Python integer {value} out of bounds for {NUMPY[dtype]}")
    if _is_number(value):
        return torch.full((), value, dtype=dtype)
    return cast(tensor_of(value), dtype)


def _is_number(value: Any) -> bool:
    """Whether a value is a number of Python, which has no dtype in NumPy's promotion."""
    return (
        not is_traced(value) and not isinstance(value, np.generic) and isinstance(value, bool | int | float | complex)
    )


def _stored(result: Tensor, out: Any, where: Any, casting: str, name: str) -> Any:
    """The result of a call, which is in ``out`` if the program passes it."""
    if out is None:
        if where is not True:
            raise not_covered(f"numpy.{name} with where= and without out= has undefined elements")
        return TracedArray(result, is_scalar=not result.ndim)
    store(out, result, name, where=where, casting=casting)
    return out


def store(out: Any, result: Tensor, name: str, *, where: Any = True, casting: Any = "same_kind") -> None:
    """Write a result to the array that the program passes as ``out``.

    Raises:
        TypeError: the rule of ``casting`` does not allow it.
        UnsupportedError: the array is not one of the compiled program.
    """
    if not is_traced(out):
        raise not_covered(
            f"numpy.{name} writes to an array that is not an argument of the compiled function",
            "pass the array as an argument",
        )
    if out.is_scalar:
        raise TypeError("return arrays must be of ArrayType")
    out.check_writable()
    computed = NUMPY[result.dtype]
    if not np.can_cast(computed, out.dtype, casting):
        raise TypeError(
            f"Cannot cast ufunc {name!r} output from {computed!r} to {out.dtype!r} with casting rule {casting!r}"
        )
    shape = np.broadcast_shapes(tuple(result.shape), out.shape)
    if shape != out.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape {shape}"
        )
    value = new_copy(cast(result, out.tensor.dtype), [out.tensor])
    if where is not True:
        value = torch.where(cast(tensor_of(where), torch.bool), value, out.tensor)
    out.tensor.copy_(value)
