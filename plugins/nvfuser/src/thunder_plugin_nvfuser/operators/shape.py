"""Operators that move elements: reshapes, slices, repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.pytorch_internals import aten_unsafe_view
from thunder_plugin_nvfuser.row import Kind, Row

aten: Final = torch.ops.aten


def _reshape(d: Definition, x: Value, size: Sequence[int]) -> Value:
    return reshape(d, x, _result_shape(d))


def reshape(d: Definition, x: Value, shape: Sequence[int]) -> Value:
    """The elements in another shape."""
    return x if x.shape == tuple(shape) else d.call("reshape", x, gives=(shape, x.dtype), new_shape=list(shape))


def _expand(d: Definition, x: Value, size: Sequence[int], implicit: bool = False) -> Value:
    return d.broadcast(x, _result_shape(d))


def _permute(d: Definition, x: Value, dims: Sequence[int]) -> Value:
    order = [dim % len(x.shape) for dim in dims]
    if order == sorted(order):
        return x
    return d.call("permute", x, gives=([x.shape[dim] for dim in order], x.dtype), dims=order)


def _transpose(d: Definition, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(d, x, order)


def _t(d: Definition, x: Value) -> Value:
    return _transpose(d, x, 0, 1) if len(x.shape) == 2 else x


def _unsqueeze(d: Definition, x: Value, dim: int) -> Value:
    shape = _result_shape(d)
    added = [place == dim % len(shape) for place in range(len(shape))]
    return d.call("broadcast", x, gives=(shape, x.dtype), is_broadcast_dim=added)


def _squeeze(d: Definition, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    dims = range(len(x.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    return squeeze(d, x, [place % len(x.shape) for place in dims if x.shape and x.shape[place] == 1])


def squeeze(d: Definition, x: Value, dims: Sequence[int]) -> Value:
    """Remove these dimensions, which have size 1."""
    shape = [size for place, size in enumerate(x.shape) if place not in dims]
    return d.call("squeeze", x, gives=(shape, x.dtype), dims=sorted(dims)) if dims else x


def part(d: Definition, x: Value, dim: int, start: int, end: int) -> Value:
    """The elements from ``start`` to ``end`` along a dimension."""
    starts, ends = [0] * len(x.shape), list(x.shape)
    if (start, end) == (0, x.shape[dim]):
        return x
    starts[dim], ends[dim] = start, end
    shape = [last - first for first, last in zip(starts, ends)]
    return d.call("slice", x, gives=(shape, x.dtype), start_indices=starts, end_indices=ends)


def bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Start and end of a slice of a dimension of that size."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _slice(
    d: Definition, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    return part(d, x, dim % len(x.shape), *bounds(x.shape[dim], start, end))


def _one_step(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str | None:
    return None if step == 1 else "nvFuser only slices with step 1"


def _select(d: Definition, x: Value, dim: int, index: int) -> Value:
    dim, index = dim % len(x.shape), index % x.shape[dim]
    return squeeze(d, part(d, x, dim, index, index + 1), [dim])


def _split(d: Definition, x: Value, split_sizes: Sequence[int], dim: int = 0) -> list[Value | None]:
    dim, start, parts = dim % len(x.shape), 0, []
    for size, proxy in zip(split_sizes, d.results):
        parts.append(None if proxy is None else part(d, x, dim, start, start + size))
        start += size
    return parts


def _repeat(d: Definition, x: Value, repeats: Sequence[int]) -> Value:
    """Insert a dimension of the repetitions before each dimension, and merge both."""
    sizes = [1] * (len(repeats) - len(x.shape)) + list(x.shape)
    between = [number for pair in zip([1] * len(sizes), sizes) for number in pair]
    wide = [number for pair in zip(repeats, sizes) for number in pair]
    return reshape(d, d.broadcast(reshape(d, x, between), wide), _result_shape(d))


def _result_shape(d: Definition) -> list[int]:
    proxy = d.results[0]
    assert proxy is not None
    return [int(size) for size in proxy.shape]


def _moves(operator: Any, build: Any, check: Any = None) -> Row:
    return Row(operator, build, check, Kind.MOVES)


ROWS: Final = (
    *[
        _moves(operator, _reshape)
        for operator in (aten.view.default, aten_unsafe_view, aten.reshape.default, aten.view_copy.default)
    ],
    _moves(aten.expand.default, _expand),
    _moves(aten.permute.default, _permute),
    _moves(aten.transpose.int, _transpose),
    _moves(aten.t.default, _t),
    _moves(aten.unsqueeze.default, _unsqueeze),
    _moves(aten.squeeze.default, _squeeze),
    _moves(aten.squeeze.dim, _squeeze),
    _moves(aten.squeeze.dims, _squeeze),
    _moves(aten.slice.Tensor, _slice, _one_step),
    _moves(aten.select.int, _select),
    _moves(aten.split_with_sizes.default, _split),
    _moves(aten.repeat.default, _repeat),
)
