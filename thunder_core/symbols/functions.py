"""Statements of Python written as functions, so that a trace can call them.

Each does what the statement does, in place, and returns the tensor.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Final

import torch
from torch.utils.hooks import RemovableHandle

from thunder_core.ir.symbol import Symbol, Tag

_PLAIN: Final = (torch.Tensor, int, slice, EllipsisType, type(None))
"""What an index can hold of which it is known for how many dimensions it is."""


def setitem(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """``tensor[index] = value``."""
    place, index_of_place = _without_scalar_masks(tensor, index)
    if place is not tensor and isinstance(value, torch.Tensor) and value.dtype != tensor.dtype:
        # PyTorch converts what is written by other masks, if it is one value, and never by those without dimensions.
        raise RuntimeError(f"a mask without dimensions writes {value.dtype} into {tensor.dtype}")
    place[index_of_place] = value
    return tensor


def setitem_copy(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """What ``tensor`` would be after ``tensor[index] = value``, as a new tensor."""
    return setitem(tensor.clone(), index, value)


def _without_scalar_masks(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """A view of a tensor, and an index of it that means the same, with masks of one dimension instead of none.

    PyTorch reads the value of a mask without dimensions while it is at the index, which cannot be recorded. To its
    kernels it is a mask of a new dimension of size 1.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_scalar_mask, items)) or not all(isinstance(item, _PLAIN) for item in items):
        return tensor, index
    places = tuple([place for item in items for place in _places(item)])
    return tensor[places], tuple([item.unsqueeze(0).bool() if _is_scalar_mask(item) else item for item in items])


def _is_scalar_mask(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in (torch.bool, torch.uint8)


def _places(item: Any) -> tuple[Any, ...]:
    """What leaves the dimensions that an item of an index is for as they are, and makes one for a scalar mask."""
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
    """``tensor`` itself: an earlier line wrote to a tensor that shares its history, so that it requires grad now."""
    return tensor


REBASED: Final = Symbol("thunder_core.symbols.functions.rebased", rebased, tags=frozenset({Tag.SAME_OBJECT, Tag.SHAPE}))
