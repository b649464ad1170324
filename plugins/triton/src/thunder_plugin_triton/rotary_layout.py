"""Assignment of the dimensions of a rotary embedding to batch, heads and tokens, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Layout(NamedTuple):
    """Positions of dimensions among the first three of four; heads share cosines and sines."""

    batch: int
    heads: int
    tokens: int

    def of(self, values: Sequence[int]) -> tuple[int, int, int]:
        """The sizes or strides of batch, heads and tokens."""
        return values[self.batch], values[self.heads], values[self.tokens]


def four(values: Sequence[Any], first: int) -> tuple[int, ...]:
    """The values, with ``first`` for missing leading dimensions."""
    return (first,) * (4 - len(values)) + tuple(values)


def broadcast_strides(shape: Sequence[Any], stride: Sequence[Any]) -> tuple[int, ...]:
    """Strides of four dimensions; 0 for those of size 1, which are broadcast."""
    return tuple([0 if size == 1 else step for size, step in zip(four(shape, 1), four(stride, 0))])


def layout(shape: Sequence[int], *strides: Sequence[int]) -> Layout | None:
    """The layout whose heads are the largest dimension in which all tables are broadcast; None without such a
    dimension.

    Args:
        shape: the four sizes of the input.
        strides: of cosines and sines, from `broadcast_strides`.
    """
    positions = shared(shape, *strides)
    if not positions:
        return None
    heads = max(positions, key=lambda position: (shape[position], -position))
    batch, tokens = [position for position in range(3) if position != heads]
    return Layout(batch, heads, tokens)


def shared(shape: Sequence[Any], *strides: Sequence[Any]) -> list[int]:
    """The dimensions among the first three in which all tables are broadcast; arguments as for `layout`."""
    return [position for position in range(3) if shape[position] == 1 or all(each[position] == 0 for each in strides)]
