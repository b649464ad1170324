"""Tensors as cuDNN is told of them: what a graph is built for, and known by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Dtype, sizes and strides."""

ALIGNMENT: Final = 16
"""Bytes: the kernels read rows in vectors, and cuDNN before the frontend 1.32 does not check that they can."""


def layout_of(tensor: torch.Tensor) -> Layout:
    """The layout of a tensor: for tensors alike the same object, so that descriptions are compared and hashed fast."""
    return _known_layout(tensor.dtype, tensor.shape, tensor.stride())


def layout_of_proxy(tensor: TensorProxy) -> Layout:
    """The layout that a tensor of a program will have."""
    return made_layout(tensor.dtype, tuple(tensor.shape), tensor.stride)


def made_layout(dtype: torch.dtype, shape: tuple[Any, ...], stride: Sequence[Any]) -> Layout:
    """A layout in which strides of dimensions of one element, which say nothing, are those of a dense tensor."""
    if 1 in shape[:-1]:
        extent = max(size * step for size, step in zip(shape, stride))
        stride = [extent if size == 1 else step for size, step in zip(shape, stride)]
    if shape[-1] == 1:
        stride = [*stride[:-1], 1]
    return dtype, shape, tuple(stride)


@lru_cache(maxsize=4096)
def _known_layout(dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]) -> Layout:
    return made_layout(dtype, tuple(shape), stride)


def unfit_strides(name: str, layout: Layout) -> str | None:
    """Why attention cannot read, or write, a tensor of this layout in place; None if it can."""
    dtype, shape, stride = layout
    if stride[-1] != 1:
        return f"the last stride of {name} is {stride[-1]}, not 1"
    step = ALIGNMENT // dtype.itemsize
    for size, found in zip(shape[:-1], stride[:-1]):
        if size > 1 and (found == 0 or found % step):
            return f"a stride of {name} is {found}, not a positive multiple of {step}"
    return None


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy of it where it does not begin at a multiple of `ALIGNMENT`."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def ordered_strides(shape: tuple[int, ...], stride: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor of this shape whose dimensions but the last lie in memory in the order of ``stride``.

    So PyTorch lays out what its cuDNN attention returns, after the query.
    """
    order = sorted(range(len(shape) - 1), key=lambda dimension: (stride[dimension], -dimension))
    found, extent = [1] * len(shape), shape[-1]
    for dimension in order:
        found[dimension] = extent
        extent *= shape[dimension]
    return tuple(found)
