"""Indices that are sizes: a line selects there, where PyTorch would take the number of this call for an index."""

from __future__ import annotations

from types import EllipsisType, NoneType
from typing import Any, Final

from torch import Tensor

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_size import TracedSize

INDEXING: Final[frozenset[Any]] = frozenset({Tensor.__getitem__, Tensor.__setitem__})
_BASIC: Final = frozenset({int, TracedSize, slice, NoneType, EllipsisType})


def has_size(index: Any) -> bool:
    """Whether sizes are among the indices, these are ints, slices, None and Ellipsis alone, and None comes last.

    The stride of a dimension that None makes tells whether it was made before another one was selected.
    """
    items = index if type(index) is tuple else (index,)
    sizes = [position for position, item in enumerate(items) if type(item) is TracedSize]
    return bool(sizes) and all(type(item) in _BASIC for item in items) and None not in items[: sizes[-1]]


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
