"""Reads and writes of items by NumPy's rules, which PyTorch's layer does not have for slices with a negative step."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch

from thunder_plugin_numpy.coverage import not_covered
from thunder_plugin_numpy.pytorch_internals import LayerArray

_BACKWARDS = "is a slice with a negative step"


def read(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, bool, str]:
    """``tensor[index]``, whether the result is a NumPy scalar, and why it is a copy where NumPy returns a view."""
    parts = _parts(index)
    flipped, parts = _forwards(tensor, parts)
    given = tensor.flip(flipped) if flipped else tensor
    result = LayerArray(given)[_plain(parts)].tensor
    basic = _is_basic(parts)
    is_scalar = not result.ndim and not any(part is Ellipsis for part in parts)
    return result, is_scalar, _BACKWARDS if flipped and basic else ""


def write(tensor: torch.Tensor, index: Any, value: torch.Tensor) -> None:
    """``tensor[index] = value``, with the casts of NumPy."""
    from thunder_plugin_numpy.operands import new_copy
    from thunder_plugin_numpy.traced_array import cast

    parts = _parts(index)
    forwards, backwards = _ascending(tensor, parts)
    value = new_copy(cast(value, tensor.dtype), [tensor])  # PyTorch refuses to copy between places that overlap
    if _is_basic(parts):
        place = LayerArray(tensor)[_plain(forwards)].tensor
        given = _broadcast(value, place.shape)
        place.copy_(given.flip(backwards) if backwards else given)
    elif backwards:
        raise not_covered("a write with a negative step and an array as indices is not covered")
    else:
        LayerArray(tensor)[_plain(parts)] = LayerArray(_without_ones(value, tensor, parts))


def _ascending(tensor: torch.Tensor, parts: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """The index of the same elements with positive steps, and the dimensions of the result in which it turns them."""
    flipped, _ = _forwards(tensor, parts)
    result: list[Any] = []
    backwards: list[int] = []
    total, dimension, of_result = sum(map(_consumed, parts)), 0, 0
    for part in parts:
        if isinstance(part, slice) and dimension in flipped and part.step is not None and part.step < 0:
            start, stop, step = part.indices(int(tensor.shape[dimension]))
            count = len(range(start, stop, step))
            part = slice(start + (count - 1) * step, start + 1, -step) if count else slice(0, 0)
            backwards.append(of_result)
        result.append(part)
        dimension += tensor.ndim - total if part is Ellipsis else _consumed(part)
        of_result += tensor.ndim - total if part is Ellipsis else int(part is None or isinstance(part, slice))
    return tuple(result), backwards


def _broadcast(value: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """``value`` in the shape of the place; leading dimensions of size one may be too many, as in NumPy."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    try:
        return torch.broadcast_to(value, shape)
    except RuntimeError:
        raise ValueError(
            f"could not broadcast input array from shape {_text(value.shape)} into shape {_text(shape)}"
        ) from None


def _text(shape: torch.Size) -> str:
    return "(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _without_ones(value: torch.Tensor, tensor: torch.Tensor, parts: tuple[Any, ...]) -> torch.Tensor:
    while value.ndim > tensor.ndim + sum(part is None for part in parts) and value.shape[0] == 1:
        value = value[0]
    return value


def _parts(index: Any) -> tuple[Any, ...]:
    """The parts of an index, as ints, slices, None, Ellipsis and tensors."""
    return tuple([_part(part) for part in (index if isinstance(index, tuple) else (index,))])


def _part(part: Any) -> Any:
    from thunder_plugin_numpy.operands import asarray, is_traced, tensor_of

    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        return slice(
            *[None if bound is None else operator.index(bound) for bound in (part.start, part.stop, part.step)]
        )
    if is_traced(part):
        if part.dtype.kind not in "iub":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        return part.tensor
    if isinstance(part, list | np.ndarray | tuple | torch.Tensor):
        tensor = tensor_of(asarray(part, dtype=np.intp) if isinstance(part, list) and not part else part)
        if tensor.dtype not in _INDICES:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        return tensor
    if isinstance(part, bool | np.bool_):
        return bool(part)
    try:
        return operator.index(part)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            "valid indices"
        ) from None


_INDICES = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def _is_basic(parts: tuple[Any, ...]) -> bool:
    """Whether an index selects a view."""
    return not any(isinstance(part, torch.Tensor | bool) for part in parts)


def _plain(parts: tuple[Any, ...]) -> Any:
    return tuple([LayerArray(part) if isinstance(part, torch.Tensor) else part for part in parts])


def _consumed(part: Any) -> int:
    """How many dimensions a part of an index selects from."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, torch.Tensor) and part.dtype is torch.bool else 1


def _forwards(tensor: torch.Tensor, parts: tuple[Any, ...]) -> tuple[list[int], tuple[Any, ...]]:
    """The dimensions to flip so that all steps are positive, and the index of the flipped tensor."""
    total = sum(map(_consumed, parts))
    if total > tensor.ndim:
        raise IndexError(f"too many indices for array: array is {tensor.ndim}-dimensional, but {total} were indexed")
    flipped, result, dimension = [], [], 0
    for part in parts:
        if part is Ellipsis:
            dimension += tensor.ndim - total
        elif type(part) is int and not -tensor.shape[dimension] <= part < tensor.shape[dimension]:
            raise IndexError(f"index {part} is out of bounds for axis {dimension} with size {tensor.shape[dimension]}")
        elif isinstance(part, slice) and part.step is not None and part.step < 0:
            size = int(tensor.shape[dimension])
            start, stop, step = part.indices(size)
            count = len(range(start, stop, step))
            flipped.append(dimension)
            first = size - 1 - start
            part = slice(first, first + (count - 1) * -step + 1, -step) if count else slice(0, 0)
        result.append(part)
        dimension += _consumed(part)
    return flipped, tuple(result)
