"""Indexing by tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Number, Value
from thunder_plugin_nvfuser.operators.shape import reshape
from thunder_plugin_nvfuser.row import Kind, Row

aten: Final = torch.ops.aten

_INTEGERS: Final = (torch.int32, torch.int64)


def _look_up(d: Definition, x: Value, dim: int, index: Value) -> Value:
    """Slices of ``x`` along ``dim``; the dimensions of the index replace it."""
    flat = reshape(d, index, [_count(index)])
    shape = [*x.shape[:dim], _count(index), *x.shape[dim + 1 :]]
    selected = d.call("index_select", x, flat, gives=(shape, x.dtype), dim=dim)
    return reshape(d, selected, [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]])


def _count(index: Value) -> int:
    count = 1
    for size in index.shape:
        count *= size
    return count


def _index_select(d: Definition, x: Value, dim: int, index: Value) -> Value:
    dim = dim % len(x.shape)
    return _look_up(d, x, dim, reshape(d, index, [_count(index)]))


def _embedding(
    d: Definition,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return _look_up(d, weight, 0, indices)


def _index(d: Definition, x: Value, indices: Sequence[Value | None]) -> Value:
    """Indexing by one tensor. Negative indices, which nvFuser does not support, are converted."""
    ((dim, index),) = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    size = x.shape[dim]
    negative = d.compute("lt", index, 0, dtype=index.dtype, gives=torch.bool)
    counted = d.where(negative, d.compute("add", index, size, dtype=index.dtype), index, index.dtype)
    return _look_up(d, x, dim, counted)


def _one_index(x: Any, indices: Sequence[Any]) -> str | None:
    given = [index for index in indices if index is not None]
    if len(given) != 1:
        return f"it has {len(given)} index tensors, and nvFuser indexes one dimension"
    return None if given[0].dtype in _INTEGERS else f"its index is {given[0].dtype}"


def _gather(d: Definition, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return d.call("gather", x, index, gives=(index.shape, x.dtype), dim=dim % len(x.shape))


def _has_dimensions(x: Any, dim: int, index: Any, **options: Any) -> str | None:
    return None if x.ndim and index.ndim else "it indexes a tensor without dimensions"


def _scatter(d: Definition, x: Value, dim: int, index: Value, source: Any) -> Value:
    source = Number(source, x.dtype) if not isinstance(source, Value) else source
    return d.call("scatter", x, index, source, gives=(x.shape, x.dtype), dim=dim % len(x.shape))


def _all_of_source(x: Any, dim: int, index: Any, source: Any) -> str | None:
    if not (x.ndim and index.ndim):
        return "it writes to a tensor without dimensions"
    same = not hasattr(source, "shape") or tuple(source.shape) == tuple(index.shape)
    return None if same else "it writes only a part of its source"


def _reads(operator: Any, build: Any, check: Any = None) -> Row:
    return Row(operator, build, check, Kind.INDEXES)


ROWS: Final = (
    _reads(aten.index_select.default, _index_select, _has_dimensions),
    _reads(aten.embedding.default, _embedding),
    _reads(aten.index.Tensor, _index, _one_index),
    _reads(aten.gather.default, _gather, _has_dimensions),
    _reads(aten.scatter.src, _scatter, _all_of_source),
    _reads(aten.scatter.value, _scatter, _all_of_source),
)
