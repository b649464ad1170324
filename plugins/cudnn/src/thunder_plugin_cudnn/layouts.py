"""Layouts of tensors, by which graphs are built and cached."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Dtype, sizes and strides."""

ALIGNMENT: Final = 16
"""In bytes: the kernels read vectors, and cuDNN does not check the alignment before the frontend 1.32."""


def layout_of(tensor: torch.Tensor) -> Layout:
    """The layout of a tensor: one object for equal layouts, for fast comparison and hashing."""
    return _known_layout(tensor.dtype, tensor.shape, tensor.stride())


def layout_of_proxy(tensor: TensorProxy) -> Layout:
    """The layout of the tensor of a proxy."""
    return canonical_layout(tensor.dtype, tuple(tensor.shape), tensor.stride)


def canonical_layout(dtype: torch.dtype, shape: tuple[Any, ...], stride: Sequence[Any]) -> Layout:
    """A layout in which the meaningless strides of dimensions of size 1 are those of a dense tensor."""
    if 1 in shape[:-1]:
        extent = max(size * step for size, step in zip(shape, stride))
        stride = [extent if size == 1 else step for size, step in zip(shape, stride)]
    if shape[-1] == 1:
        stride = [*stride[:-1], 1]
    return dtype, shape, tuple(stride)


@lru_cache(maxsize=4096)
def _known_layout(dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]) -> Layout:
    return canonical_layout(dtype, tuple(shape), stride)


def unfit_strides(name: str, layout: Layout) -> str | None:
    """The reason why attention cannot read or write a tensor of this layout without a copy; None if it can."""
    dtype, shape, stride = layout
    if stride[-1] != 1:
        return f"the last stride of {name} is {stride[-1]}, not 1"
    step = ALIGNMENT // dtype.itemsize
    for size, actual in zip(shape[:-1], stride[:-1]):
        if size > 1 and (actual == 0 or actual % step):
            return f"a stride of {name} is {actual}, not a positive multiple of {step}"
    return None


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy if its address is not a multiple of `ALIGNMENT`."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def ordered_strides(shape: tuple[int, ...], stride: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor of this shape whose dimensions, except the last, are in the order of ``stride``.

    PyTorch's cuDNN attention returns results with these strides, in the order of the query.
    """
    order = sorted(range(len(shape) - 1), key=lambda dimension: (stride[dimension], -dimension))
    strides, extent = [1] * len(shape), shape[-1]
    for dimension in order:
        strides[dimension] = extent
        extent *= shape[dimension]
    return tuple(strides)
