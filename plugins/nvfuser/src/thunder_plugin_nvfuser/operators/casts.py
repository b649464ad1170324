"""Casts, copies, and tensor factories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.definition import Definition, Number, Value
from thunder_plugin_nvfuser.pytorch_internals import (
    aten_to_copy,
    prims_definitions,  # noqa: F401 - defines torch.ops.prims
)
from thunder_plugin_nvfuser.row import Kind, Row

aten: Final = torch.ops.aten
prims: Final = torch.ops.prims


def _same(d: Definition, x: Value, *args: Any, **options: Any) -> Value:
    """The value; all results are cast to the dtype of the trace."""
    return x


def _same_device(x: Any, *args: Any, device: Any = None, **options: Any) -> str | None:
    if device is not None and torch.device(device).type != x.device.type:
        return f"it copies from {x.device} to {device}"
    return None


def _full(d: Definition, size: Sequence[int], fill_value: float, **options: Any) -> Value:
    return _filled(d, fill_value)


def _full_like(d: Definition, x: Value, fill_value: float, **options: Any) -> Value:
    return _filled(d, fill_value)


def _scalar_tensor(d: Definition, s: float, **options: Any) -> Value:
    return _filled(d, s)


def _filled(d: Definition, value: float) -> Value:
    proxy = d.results[0]
    assert proxy is not None
    return d.full([int(size) for size in proxy.shape], value, proxy.dtype)


def _arange(d: Definition, start: int, end: int, step: int = 1, **options: Any) -> Value:
    return _steps(d, start, step)


def _iota(d: Definition, length: int, *, start: int, step: int, **options: Any) -> Value:
    return _steps(d, start, step)


def _steps(d: Definition, start: int, step: int) -> Value:
    proxy = d.results[0]
    assert proxy is not None
    number = [Number(value, torch.int64) for value in (int(proxy.shape[0]), start, step)]
    return d.call("iota", *number, gives=([int(proxy.shape[0])], torch.int64), dtype=torch.int64)


def _integers(*args: Any, dtype: Any = None, **options: Any) -> str | None:
    numbers = [value for value in args if value is not None]
    if not all(isinstance(value, int) for value in numbers) or (dtype is not None and dtype.is_floating_point):
        return "its steps are floating-point numbers"
    return None


ROWS: Final = (
    Row(aten_to_copy, _same, _same_device),
    Row(prims.convert_element_type.default, _same),
    Row(aten.clone.default, _same, kind=Kind.MOVES),
    Row(aten.alias.default, _same, kind=Kind.MOVES),
    Row(aten.detach.default, _same, kind=Kind.MOVES),
    Row(aten.lift_fresh_copy.default, _same, kind=Kind.MOVES),
    Row(aten.full.default, _full, kind=Kind.MOVES),
    Row(aten.full_like.default, _full_like, kind=Kind.MOVES),
    Row(aten.scalar_tensor.default, _scalar_tensor, kind=Kind.MOVES),
    Row(aten.arange.start_step, _arange, _integers, Kind.MOVES),
    Row(prims.iota.default, _iota, kind=Kind.MOVES),
)
