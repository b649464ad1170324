"""Indices of tensors with sizes that vary.

A size as an index selects by a line, where PyTorch would take the number of this call. A slice of the last elements,
``x[-16:]``, of which there are fewer now, begins at an expression of the size: a cache that grows to that many does not
need another program then.
"""

from __future__ import annotations

from types import EllipsisType, NoneType
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_size import TracedSize, traced
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.pytorch_internals import DisableTorchFunction

INDEXING: Final[frozenset[Any]] = frozenset({Tensor.__getitem__, Tensor.__setitem__})
_BASIC: Final = frozenset({int, TracedSize, slice, NoneType, EllipsisType})


def has_size(index: Any) -> bool:
    """Whether sizes are among the indices, these are ints, slices, None and Ellipsis alone, and None comes last.

    The stride of a dimension that None makes tells whether it was made before another one was selected.
    """
    items = index if type(index) is tuple else (index,)
    sizes = [position for position, item in enumerate(items) if type(item) is TracedSize]
    return bool(sizes) and all(type(item) in _BASIC for item in items) and None not in items[: sizes[-1]]


def with_starts(recorder: Recorder, tensor: Tensor, index: Any) -> Any:
    """An index whose slices begin within the tensor, whatever its sizes, where they begin before it in this call.

    Slices that begin within the tensor now stay: they have as many elements in all calls of which that is true.
    """
    items = index if type(index) is tuple else (index,)
    if not any(type(item) is slice and type(item.start) is int and item.start < 0 for item in items):
        return index
    if not all(type(item) in _BASIC for item in items):
        return index
    with recorder.suspension, DisableTorchFunction():
        shape = recorder.tensors.variable(tensor).proxy.shape
    changed = list(items)
    dim = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            dim = len(shape) - sum(other is not None for other in items[position + 1 :])
            continue
        if type(item) is slice and dim < len(shape):
            changed[position] = _with_start(item, shape[dim])
        dim += item is not None
    return tuple(changed) if type(index) is tuple else changed[0]


def _with_start(item: slice, size: Size) -> slice:
    if type(size) is not SizeExpr or type(item.start) is not int or item.start >= 0 or item.step not in (None, 1):
        return item
    if size.hint + item.start >= 0:
        return item
    return slice(traced(torch.sym_max(size.symint + item.start, 0)), item.stop, item.step)


def index_by_sizes(recorder: Recorder, function: Any, tensor: Tensor, index: Any, *value: Any) -> Any:
    """``tensor[index]``, or ``tensor[index] = value``, where `has_size` holds of the index."""
    items = index if type(index) is tuple else (index,)
    dim, rest = 0, []
    for position, item in enumerate(items):
        if type(item) is TracedSize:
            tensor = recorder.call(Tensor.select, (tensor, dim, item), {})
            continue
        rest.append(item)
        after = [other for other in items[position + 1 :] if other is not None]
        dim = tensor.ndim - len(after) if item is Ellipsis else dim + 1
    if not rest and function is Tensor.__getitem__:
        return tensor
    return recorder.call(function, (tensor, tuple(rest) or Ellipsis, *value), {})
