"""In-place calls that Inductor compiles to stores into an argument, with the same values as PyTorch's.

Both calls below become `aten.index_put_`, which Inductor fuses with the computation of the values: the kernel stores
them at their indices, and no other element of the written tensor is read or copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_inductor.differences import without_negative
from thunder_plugin_inductor.fusible import unsuitable


def can_write(bound: BoundSymbol) -> bool | str:
    """True, or the reason why the in-place operation cannot be part of a region."""
    arguments = _arguments(bound)
    if arguments is None:
        return f"regions do not support the in-place writes of {bound.symbol.name}"
    written, indices, values = arguments
    reason = unsuitable([written, values, *indices])
    if reason is not None:
        return reason
    if values.dtype != written.dtype:
        return f"it writes {values.dtype} into {written.dtype}"
    if any(proxy.storage == written.storage for proxy in (values, *indices)):
        return "it reads the memory that it writes"
    if any(stride == 0 and size != 1 for size, stride in zip(written.shape, written.stride, strict=True)):
        return "it writes a tensor with overlapping elements"
    if not all(index.dtype is torch.int64 and all(map(_is_one, index.shape)) for index in indices):
        return "it writes at several indices, which may be equal"  # not deterministic in parallel
    return True


def index_copy_(written: torch.Tensor, dim: int, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`torch.Tensor.index_copy_` as `index_put_`, which counts negative indices from the end; here they are errors."""
    dim = dim % written.ndim
    indices: list[torch.Tensor | None] = [*[None] * dim, without_negative(index, written, dim)]
    return torch.ops.aten.index_put_.default(written, indices, values)  # type: ignore[no-any-return]


def _arguments(bound: BoundSymbol) -> tuple[TensorProxy, tuple[TensorProxy, ...], TensorProxy] | None:
    """The written tensor, the indices, and the values; None for unsupported calls."""
    target, args = bound.symbol.target, (*bound.args, *bound.kwargs.values())
    if target is torch.Tensor.index_copy_ and not bound.kwargs:
        written, _, index, values = args
        if len(index.shape) != 1:
            return None
        indices: Any = (index,)
    elif target is torch.Tensor.index_put_ and not bound.kwargs and len(args) == 3:  # without accumulate
        written, indices, values = args
    else:
        return None
    tensors = (written, *_tensors(indices), values)
    fits = len(tensors) > 2 and all(isinstance(value, TensorProxy) for value in tensors)
    return (written, tensors[1:-1], values) if fits and bound.effects.mutates == (written.name,) else None


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _tensors(indices: Any) -> Iterator[Any]:
    return (index for index in indices if index is not None)
