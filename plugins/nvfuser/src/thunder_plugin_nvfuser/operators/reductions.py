"""Sums, products, extrema, variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.promotion import FLOAT, WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten

Dims = int | Sequence[int] | None


def all_dims(ndim: int, dim: Dims) -> list[int]:
    """The reduced dimensions, counted from the front; None and an empty list mean all."""
    given = [dim] if isinstance(dim, int) else list(dim or range(ndim))
    return sorted(place % ndim for place in given) if ndim else []


def reduce(d: Definition, operation: str, x: Value, dim: Dims, keepdim: bool, dtype: torch.dtype) -> Value:
    """A reduction, computed in ``dtype``."""
    x, dims = d.cast(x, dtype), all_dims(len(x.shape), dim)
    if not dims:
        return x
    return d.call(operation, x, gives=(reduced(x.shape, dims, keepdim), dtype), dims=dims, keepdim=keepdim)


def reduced(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> list[int]:
    """The shape of the result."""
    if keepdim:
        return [1 if place in dims else size for place, size in enumerate(shape)]
    return [size for place, size in enumerate(shape) if place not in dims]


def _accumulate(operation: str) -> Any:
    """Accumulates integers and bools in 64 bits, float16 and bfloat16 in float32."""

    def build(d: Definition, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
        if dtype is not None:
            x = d.cast(x, dtype)
        computation = computation_dtype([x], WIDEST)
        computation = computation if computation.is_floating_point else torch.int64
        return reduce(d, operation, x, dim, keepdim, computation)

    return build


def _mean(d: Definition, x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    if dtype is not None:
        x = d.cast(x, dtype)
    computation = computation_dtype([x], FLOAT)
    count = math.prod([x.shape[place] for place in all_dims(len(x.shape), dim)])
    return d.compute("truediv", reduce(d, "sum", x, dim, keepdim, computation), count, dtype=computation)


def _extremum(operation: str) -> Any:
    def build(d: Definition, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        computation = computation_dtype([x], WIDEST)
        return reduce(d, operation, x, dim, keepdim, torch.int32 if computation is torch.bool else computation)

    return build


def _any(d: Definition, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    truth = d.cast(x, torch.bool)
    return reduce(d, "max", truth, dim, keepdim, torch.int32)


def _variance(d: Definition, x: Value, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    computation = computation_dtype([x], WIDEST)
    return moments(d, d.cast(x, computation), all_dims(len(x.shape), dim), _correction(correction), keepdim)[0]


def _variance_and_mean(
    d: Definition, x: Value, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> list[Value]:
    computation = computation_dtype([x], WIDEST)
    return moments(d, d.cast(x, computation), all_dims(len(x.shape), dim), _correction(correction), keepdim)


def moments(d: Definition, x: Value, dims: list[int], correction: int, keepdim: bool) -> list[Value]:
    """Variance and mean over these dimensions; at least one."""
    gives = (reduced(x.shape, dims, keepdim), x.dtype)
    return d.calls("var_mean", x, gives=[gives, gives], dims=dims, correction=correction, keepdim=keepdim)


def _norm(
    d: Definition, x: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    computation = computation_dtype([x if dtype is None else d.cast(x, dtype)], WIDEST)
    size = d.compute("abs", x, dtype=computation)
    if math.isinf(ord):
        return reduce(d, "max" if ord > 0 else "min", size, dim, keepdim, computation)
    if ord == 1:
        return reduce(d, "sum", size, dim, keepdim, computation)
    total = reduce(d, "sum", d.compute("mul", size, size, dtype=computation), dim, keepdim, computation)
    return d.compute("sqrt", total, dtype=computation)


def _common_norm(x: Any, ord: float = 2, *args: Any, **options: Any) -> str | None:
    return None if ord in (1, 2, math.inf, -math.inf) else f"it is a norm of order {ord}"


def _correction(given: Any) -> int:
    return 1 if given is None else int(given)


def _enough(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> str | None:
    if correction is not None and int(correction) != correction:
        return "the correction of its variance is not an integer"
    count = math.prod([int(x.shape[place]) for place in all_dims(x.ndim, dim)])
    return None if x.ndim and count > _correction(correction) else "its variance is of too few elements"


def _flat(build: Any) -> Any:
    """The builder for overloads without dimensions."""

    def all_of_it(d: Definition, x: Value, *, dtype: Any = None) -> Value:
        result: Value = build(d, x) if dtype is None else build(d, x, dtype=dtype)
        return result

    return all_of_it


ROWS: Final = (
    Row(aten.sum.dim_IntList, _accumulate("sum")),
    Row(aten.sum.default, _flat(_accumulate("sum"))),
    Row(aten.prod.dim_int, _accumulate("prod")),
    Row(aten.prod.default, _flat(_accumulate("prod"))),
    Row(aten.mean.dim, _mean),
    Row(aten.mean.default, _flat(_mean)),
    Row(aten.amax.default, _extremum("max")),
    Row(aten.amin.default, _extremum("min")),
    Row(aten.linalg_vector_norm.default, _norm, _common_norm),
    Row(aten.any.default, _flat(_any)),
    Row(aten.any.dim, _any),
    Row(aten.any.dims, _any),
    Row(aten.var.correction, _variance, _enough),
    Row(aten.var_mean.correction, _variance_and_mean, _enough),
)
