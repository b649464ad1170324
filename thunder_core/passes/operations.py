"""Functions for functional traces that PyTorch lacks. Only those of the epilogue write to their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.ir.geometry import nested
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import compute_required_storage_length, foreach_copy_


def functional_call(
    function: Callable[..., Any], written: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Call ``function`` with copies of the arguments that it writes.

    Args:
        written: positions of those arguments among the leaves of ``(args, kwargs)``.

    Returns:
        The function's result, followed by the copies.
    """
    args, kwargs, copies = with_copies(written, args, kwargs)
    return (function(*args, **kwargs), *copies)


def with_copies(
    positions: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]:
    """The arguments with copies of the leaves at these positions, one copy for each tensor; and the copies."""
    leaves = list(iterate_leaves((args, kwargs)))
    copies = {id(leaves[position]): strided_copy(leaves[position]) for position in positions}
    args, kwargs = map_leaves(lambda leaf: copies.get(id(leaf), leaf), (args, kwargs))
    return args, kwargs, [copies[id(leaves[position])] for position in positions]


def recomputed_call(
    function: Callable[..., Any],
    written: tuple[int, ...],
    locations: tuple[tuple[Any, ...] | None, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, ...]:
    """`functional_call` of `checkpoint_with_writes`: backward recomputes it, and then writes the program's inputs.

    Args:
        locations: for each argument of ``written``, the arguments of `strided_view` that locate it in an input of the
            program; None if it is in no input: backward then writes the copy.
    """
    leaves = list(iterate_leaves((args, kwargs)))
    first = 1 + len(args[1])  # the leaves before the operands: the body, and the positions of those that are saved
    again = {
        position - first: None
        if location is None
        else _same_history(leaves[position], strided_view(location[0].detach(), *location[1:]))
        for position, location in zip(written, locations, strict=True)
    }
    return functional_call(function, written, args, {**kwargs, "again": again})


def _same_history(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """``data`` with the autograd history of ``tensor``."""
    return with_data(tensor, data) if tensor.requires_grad and torch.is_grad_enabled() else data


def strided_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A differentiable copy with the strides of ``tensor``, even if these overlap."""
    copy = tensor.clone()
    if tensor.layout is not torch.strided or copy.stride() == tensor.stride():
        return copy
    if nested(tensor.shape, tensor.stride()):
        return _laid_out(tensor, tensor.stride())
    length = compute_required_storage_length(tensor.shape, tensor.stride(), 0)
    return tensor.as_strided((length,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def restride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """The values of ``tensor`` with other strides; a view of it where only strides of dimensions of size 1 differ."""
    if all(one == other or size == 1 for size, one, other in zip(tensor.shape, tensor.stride(), stride, strict=True)):
        return tensor.as_strided(tensor.shape, stride)
    return _laid_out(tensor, stride)


def with_strides(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """``tensor`` if it has these strides, else a copy that has: some kernels require them.

    Without strides (an empty tuple, for a sparse tensor) the result is ``tensor`` itself. A lazy conjugate or negative
    is copied, since ops were recorded for plain elements (`torch.view_as_real`).
    """
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.layout is not torch.strided or tensor.stride() == stride or len(stride) != tensor.ndim:
        return tensor
    return restride(tensor, stride)


def _laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    empty = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return empty.copy_(tensor)


def strided_view(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """The view of that size and stride; ``offset`` counts elements from the first one of ``tensor``."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def strided_write(
    tensor: torch.Tensor, value: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A copy of ``tensor`` whose `strided_view` has the values of ``value``."""
    copy = strided_copy(tensor)
    strided_view(copy, size, stride, offset).copy_(value)
    return copy


def view_write(tensor: torch.Tensor, value: torch.Tensor, view: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A copy of ``tensor`` whose view ``view(copy)`` has the values of ``value``."""
    copy = strided_copy(tensor)
    view(copy).copy_(value)
    return copy


class _WithData(torch.autograd.Function):
    """Passes gradients through unchanged, and replaces the data."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.detach()  # shares memory, and is not a view to autograd: it may be written later

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """``tensor`` after a write to its storage that autograd did not record.

    The result shares the storage of ``data``; its gradient is the gradient of ``tensor``.
    """
    with torch.enable_grad():
        return _WithData.apply(tensor, data.detach())  # type: ignore[no-any-return]


# ---------------------------------------------------------------- epilogue


def copy_uncounted(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``tensor.copy_(value)`` that ``tensor._version`` does not count: autograd may have saved the tensor."""
    tensor.data.copy_(value)
    return tensor


def copy_all_uncounted(tensors: tuple[torch.Tensor, ...], values: tuple[torch.Tensor, ...]) -> None:
    """`copy_uncounted` for tensors of one dtype on one device."""
    foreach_copy_([tensor.data for tensor in tensors], values)
