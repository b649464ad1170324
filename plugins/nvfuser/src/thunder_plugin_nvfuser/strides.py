"""The order of dimensions in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def stride_order(shape: Sequence[Any], stride: Sequence[Any]) -> list[int]:
    """nvFuser's stride order: the rank of each dimension, 0 for the innermost.

    Dimensions of equal strides (one of them has size 1) are ordered by position, as in contiguous tensors.
    """
    outermost_first = sorted(range(len(shape)), key=lambda dim: (-int(stride[dim]), dim))
    order = [0] * len(shape)
    for place, dim in enumerate(outermost_first):
        order[dim] = len(shape) - 1 - place
    return order
