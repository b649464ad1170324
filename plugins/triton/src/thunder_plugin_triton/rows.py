"""Tensors as rows: the last dimension adjacent in memory, and one distance from each row to the next."""

from __future__ import annotations

from torch import Tensor


def with_row_stride(tensor: Tensor, width: int) -> tuple[Tensor, int]:
    """A tensor of rows of ``width`` elements, and the distance between them in elements.

    It is the tensor itself, or a view of it, where its strides allow that, and else a contiguous copy.
    """
    if tensor.is_contiguous():
        return tensor, width
    found = tensor.reshape(-1, width)
    if width > 1 and found.stride(1) != 1:
        found = found.contiguous()
    return found, found.stride(0)


def next_power_of_two(number: int) -> int:
    """The least one that is not below ``number``, which is positive."""
    return 1 << (number - 1).bit_length()
