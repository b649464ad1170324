"""Functions that create tensors, and whose sizes are ints for PyTorch: `torch.linspace`, windows, `torch.tril_indices`.

A call on a size that varies would make it a constant, or raise an exception. Here the metadata of the result is that of
a call with a small number of elements, with the size in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import zero_tangent

_STEPS: Final[dict[Callable[..., Any], tuple[int, str]]] = {
    **dict.fromkeys((torch.linspace, torch.logspace), (2, "steps")),
    **dict.fromkeys(
        (
            *(torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window),
            torch.kaiser_window,
        ),
        (0, "window_length"),
    ),
}
"""Functions of one number of elements, with its position and name."""
_TRIANGLES: Final = frozenset({torch.tril_indices, torch.triu_indices})
_EXAMPLE: Final = 2


def has_counted_size(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a number of elements in a call varies, which PyTorch would make a constant; not of a tensor ``out``."""
    if kwargs.get("out") is not None:
        return False
    if function in _STEPS:
        position, name = _STEPS[function]
        count = args[position] if len(args) > position else kwargs.get(name)
        return count is not None and not isinstance(count, int)
    return function in _TRIANGLES and not all(isinstance(value, int) for value in (*args[:3], kwargs.get("offset", 0)))


def created(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on fakes whose sizes vary; NotImplemented for calls that PyTorch infers."""
    if function is zero_tangent:
        return _zero_tangent(*args, **kwargs)
    if not has_counted_size(function, args, kwargs):
        return NotImplemented
    if function in _TRIANGLES:
        return _indices(function, *args, **kwargs)
    position, name = _STEPS[function]
    if len(args) > position:
        count, args = args[position], (*args[:position], _EXAMPLE, *args[position + 1 :])
    else:
        count, kwargs = kwargs[name], {**kwargs, name: _EXAMPLE}
    result = function(*args, **kwargs)
    return _like(result, count)


def _zero_tangent(tensor: torch.Tensor, other: torch.Tensor, *, self_num_batch_dims: int = 0) -> torch.Tensor:
    count = other.untyped_storage().nbytes() // other.element_size()
    batch = tuple(tensor.shape[:self_num_batch_dims])
    strides = [count]
    for size in reversed(batch[1:]):
        strides.insert(0, strides[0] * size)
    whole = torch.zeros((*batch, count), dtype=other.dtype, device=other.device)
    shape, stride = (*batch, *other.shape), (*strides[: len(batch)], *other.stride())
    return whole.as_strided(shape, stride, other.storage_offset())


def _like(result: torch.Tensor, *shape: Any) -> torch.Tensor:
    return torch.empty(shape, dtype=result.dtype, device=result.device, requires_grad=result.requires_grad)


def _indices(function: Callable[..., Any], row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
    lower = function is torch.tril_indices
    count = _below(row, col, offset) if lower else row * col - _below(row, col, offset - 1)
    return _like(function(_EXAMPLE, _EXAMPLE, **options), 2, count)


def _below(rows: Any, columns: Any, offset: Any) -> Any:
    """The number of elements of a matrix in and below a diagonal."""
    first = max(0, min(columns, offset + 1))  # elements of the first row
    empty = max(0, min(rows, -offset))  # rows above the diagonal
    full = max(0, min(rows, rows + offset - columns))  # rows whose elements are all below it
    partial = rows - empty - full
    start = first if offset >= 0 else 1
    return partial * (2 * start + partial - 1) // 2 + full * columns
