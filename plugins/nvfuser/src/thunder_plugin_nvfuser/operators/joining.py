"""Concatenation, padding, and writes to slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Number, Value
from thunder_plugin_nvfuser.operators.shape import bounds, part
from thunder_plugin_nvfuser.row import Kind, Row

aten: Final = torch.ops.aten


def _cat(d: Definition, tensors: Sequence[Value], dim: int = 0) -> Value:
    proxy = d.results[0]
    assert proxy is not None
    return _joined(d, [d.cast(tensor, proxy.dtype) for tensor in tensors], dim % len(proxy.shape))


def _joined(d: Definition, tensors: Sequence[Value], dim: int) -> Value:
    parts = [tensor for tensor in tensors if tensor.shape[dim]]
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in parts)
    return d.call("cat", list(parts), gives=(shape, parts[0].dtype), dim=dim)


def _same_dimensions(tensors: Sequence[Any], dim: int = 0) -> str | None:
    return "it joins tensors of different dimensions" if len({tensor.ndim for tensor in tensors}) > 1 else None


def _pad(d: Definition, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    shape = list(x.shape)
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        shape[-1 - place] += before + after
    return d.call("pad", x, list(pad), Number(value, x.dtype), gives=(shape, x.dtype))


def _grows(x: Any, pad: Sequence[int], value: float = 0) -> str | None:
    return "it cuts off elements by a negative padding" if min(pad, default=0) < 0 else None


def _slice_scatter(
    d: Definition, x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim = dim % len(x.shape)
    return _with_part(d, x, src, dim, *bounds(x.shape[dim], start, end))


def _one_step(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str | None:
    return None if step == 1 else "nvFuser only slices with step 1"


def _select_scatter(d: Definition, x: Value, src: Value, dim: int, index: int) -> Value:
    dim, index = dim % len(x.shape), index % x.shape[dim]
    shape = [*src.shape[:dim], 1, *src.shape[dim:]]
    added = [place == dim for place in range(len(shape))]
    row = d.call("broadcast", src, gives=(shape, src.dtype), is_broadcast_dim=added)
    return _with_part(d, x, row, dim, index, index + 1)


def _with_part(d: Definition, x: Value, src: Value, dim: int, start: int, end: int) -> Value:
    """Concatenates the elements before the slice, the slice, and those after it."""
    pieces = [d.cast(src, x.dtype)]
    if start > 0:
        pieces.insert(0, part(d, x, dim, 0, start))
    if end < x.shape[dim]:
        pieces.append(part(d, x, dim, end, x.shape[dim]))
    return _joined(d, pieces, dim)


ROWS: Final = (
    Row(aten.cat.default, _cat, _same_dimensions, Kind.MOVES),
    Row(aten.constant_pad_nd.default, _pad, _grows, Kind.MOVES),
    Row(aten.slice_scatter.default, _slice_scatter, _one_step, Kind.MOVES),
    Row(aten.select_scatter.default, _select_scatter, kind=Kind.MOVES),
)
