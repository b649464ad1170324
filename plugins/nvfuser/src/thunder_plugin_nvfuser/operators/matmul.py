"""Matmuls, if the options allow them."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.promotion import WIDEST, computation_dtype
from thunder_plugin_nvfuser.row import Row

aten: Final = torch.ops.aten


def _product(d: Definition, x: Value, y: Value) -> Value:
    shape = [*x.shape[:-1], y.shape[-1]]
    return d.call("matmul", x, y, gives=(shape, x.dtype))


def _sum_and_product(d: Definition, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    dtype = computation_dtype([x], WIDEST)
    product = _product(d, x, y)
    if alpha != 1:
        product = d.compute("mul", product, alpha, dtype=dtype)
    if not beta:
        return product
    return d.compute("add", product, bias if beta == 1 else d.compute("mul", bias, beta, dtype=dtype), dtype=dtype)


def _linear(d: Definition, input: Value, weight: Value, bias: Value | None = None) -> Value:
    shape = [*input.shape[:-1], weight.shape[0]]
    return d.call("linear", input, weight, *([] if bias is None else [bias]), gives=(shape, input.dtype))


def _of_floats(*args: Any, **options: Any) -> str | None:
    dtypes = {arg.dtype for arg in args if hasattr(arg, "dtype")}
    if len(dtypes) > 1:
        return "its operands have different dtypes"
    return None if next(iter(dtypes)).is_floating_point else "it multiplies matrices of integers"


def _of_matrices(input: Any, weight: Any, bias: Any = None) -> str | None:
    if input.ndim < 2 or weight.ndim != 2:
        return "it multiplies vectors"
    return _of_floats(input, weight, *([] if bias is None else [bias]))


ROWS: Final = (
    Row(aten.mm.default, _product, _of_floats, option="matmul"),
    Row(aten.bmm.default, _product, _of_floats, option="matmul"),
    Row(aten.addmm.default, _sum_and_product, _of_floats, option="matmul"),
    Row(aten.linear.default, _linear, _of_matrices, option="linear"),
    Row(torch.nn.functional.linear, _linear, _of_matrices, option="linear"),
)
