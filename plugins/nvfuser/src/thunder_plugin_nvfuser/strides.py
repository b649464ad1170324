"""Orders of dimensions in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def stride_order(shape: Sequence[Any], stride: Sequence[Any]) -> list[int]:
    """nvFuser's way to say how a tensor lies in memory: for each dimension its place, 0 for the innermost one.

    Dimensions of equal strides (one of them has size 1) are in the order of their positions, as in contiguous tensors.
    """
    outermost_first = sorted(range(len(shape)), key=lambda dim: (-int(stride[dim]), dim))
    order = [0] * len(shape)
    for place, dim in enumerate(outermost_first):
        order[dim] = len(shape) - 1 - place
    return order
