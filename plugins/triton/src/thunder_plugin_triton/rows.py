"""Tensors as rows: a last stride of 1, and a constant distance between rows."""

from __future__ import annotations

from torch import Tensor


def with_row_stride(tensor: Tensor, width: int) -> tuple[Tensor, int]:
    """A tensor with rows of ``width`` elements, and the distance between rows in elements.

    It is the tensor itself, or a view of it, if the strides allow that, and otherwise a contiguous copy.
    """
    if tensor.is_contiguous():
        return tensor, width
    flat = tensor.reshape(-1, width)
    if width > 1 and flat.stride(1) != 1:
        flat = flat.contiguous()
    return flat, flat.stride(0)


def next_power_of_two(number: int) -> int:
    """The least power of two that is at least ``number``, which must be positive."""
    return 1 << (number - 1).bit_length()
