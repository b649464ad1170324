"""Python statements as functions, so that traces can call them.

Each function has the effect of its statement, in place, and returns the tensor.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Final

import torch
from torch.utils.hooks import RemovableHandle

from thunder_core.ir.symbol import Symbol, Tag

_PLAIN: Final = (torch.Tensor, int, slice, EllipsisType, type(None))
"""Types of index items that index a fixed number of dimensions."""


def setitem(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """``tensor[index] = value``."""
    view, index_of_view = _without_scalar_masks(tensor, index)
    if view is not tensor and isinstance(value, torch.Tensor) and value.dtype != tensor.dtype:
        # PyTorch casts a single written value for other masks, but not for masks without dimensions.
        raise RuntimeError(f"a mask without dimensions writes {value.dtype} into {tensor.dtype}")
    view[index_of_view] = value
    return tensor


def setitem_copy(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """A copy of ``tensor`` after ``copy[index] = value``."""
    return setitem(tensor.clone(), index, value)


def _without_scalar_masks(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """A view of a tensor and an equivalent index for it, in which zero-dimensional masks have one dimension.

    PyTorch reads the value of a zero-dimensional mask while it parses the index, which cannot be recorded. It is
    equivalent to a mask of a new dimension of size 1.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_scalar_mask, items)) or not all(isinstance(item, _PLAIN) for item in items):
        return tensor, index
    of_view = tuple([part for item in items for part in _view_items(item)])
    return tensor[of_view], tuple([item.unsqueeze(0).bool() if _is_scalar_mask(item) else item for item in items])


def _is_scalar_mask(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in (torch.bool, torch.uint8)


def _view_items(item: Any) -> tuple[Any, ...]:
    """The items of an index that leaves the dimensions of ``item`` unchanged, and adds one for a scalar mask."""
    if _is_scalar_mask(item):
        return (None,)
    if item is Ellipsis:
        return (item,)
    if item is None or isinstance(item, bool):
        return ()
    is_mask = isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8)
    return (slice(None),) * (item.ndim if is_mask else 1)


def set_attribute(tensor: torch.Tensor, name: str, value: Any) -> torch.Tensor:
    """``tensor.name = value`` for a property without a function in this module."""
    setattr(tensor, name, value)
    return tensor


def delete_attribute(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``del tensor.name``, as in ``del parameter.grad``."""
    delattr(tensor, name)
    return tensor


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``tensor.data = value``."""
    tensor.data = value
    return tensor


def set_grad(tensor: torch.Tensor, value: torch.Tensor | None) -> torch.Tensor:
    """``tensor.grad = value``."""
    tensor.grad = value
    return tensor


def set_requires_grad(tensor: torch.Tensor, value: bool) -> torch.Tensor:
    """``tensor.requires_grad = value``."""
    tensor.requires_grad = value
    return tensor


def remove_hook(handle: RemovableHandle) -> None:
    """``handle.remove()``."""
    handle.remove()


def rebased(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` itself, which requires grad since an earlier op wrote to a tensor that shares its autograd history."""
    return tensor


CLEAR_CACHE: Final = Symbol("torch.clear_autocast_cache", torch.clear_autocast_cache)
"""Separates the ops of two autocast regions: the second does not reuse the casts of the first."""
REBASED: Final = Symbol("thunder_core.symbols.functions.rebased", rebased, tags=frozenset({Tag.SAME_OBJECT, Tag.SHAPE}))
