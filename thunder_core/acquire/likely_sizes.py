"""Shapes that are known for some sizes only, in terms of the symbols of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from thunder_core.acquire.input_sizes import strides_of
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.tracing.sizes import SMALLEST, Sizes

Values = Mapping[str, int]
Geometry = tuple[tuple[int, ...], tuple[int, ...]]
_STEPS: Final = (1, 2, 3, 5, 7, 8)


def samples(sizes: Sizes) -> list[Values]:
    """Values that the symbols may have by what is known of them: those of this call, larger ones, smaller ones."""
    moved = [_moved(sizes, direction) for direction in (1, -1)]
    return [sizes.values, *[values for values in moved if values != sizes.values]]


def _moved(sizes: Sizes, direction: int) -> Values:
    values = sizes.values
    for place, (name, hint) in enumerate(sizes.values.items()):
        for step in (*_STEPS[place % 3 :], hint, hint * 2, hint * 3):
            tried = {**values, name: hint + direction * step}
            if sizes.admits(tried):
                values = tried
                break
    return values


def value_at(size: Size, values: Values) -> int:
    """What a size is where the symbols have these values."""
    return size.value(values) if isinstance(size, SizeExpr) else size


def likely_geometry(
    geometries: Sequence[Geometry], arguments: Sequence[Sequence[Size]], at: Sequence[Values]
) -> tuple[tuple[Size, ...], tuple[Size, ...]] | None:
    """The shape and strides of a result as expressions, where one is known that has all of these values.

    Args:
        geometries: shape and strides, as ints, for each of ``at``.
        arguments: the shapes of the call's arguments, whose sizes, and products of sizes, are the likely ones.
        at: values of the symbols, the first those of this call.
    """
    shapes, strides = zip(*geometries, strict=True)
    if len({len(shape) for shape in shapes}) > 1:
        return None
    shape = [
        _likely([shape[index] for shape in shapes], _near(index, len(shapes[0]), arguments), at)
        for index in range(len(shapes[0]))
    ]
    known = [size for size in shape if size is not None]
    if len(known) < len(shape):
        return None
    stride = strides_of(tuple(known), strides[0], lambda _, stride: stride)
    if any(
        tuple(value_at(step, values) for step in stride) != expected
        for values, expected in zip(at, strides, strict=True)
    ):
        return None
    return tuple(known), stride


def likely_size(number: int, at: tuple[int, int], arguments: Sequence[Sequence[Size]], values: Values) -> Size:
    """The size of an argument that a size of a result equals in this call, where there is one; else the number.

    Args:
        at: its dimension, and how many dimensions the result has.
        values: of the symbols.
    """
    if number < SMALLEST:
        return number
    size = _likely([number], _near(*at, arguments), [values])
    assert size is not None
    return size


def _likely(numbers: Sequence[int], candidates: Iterator[Size], at: Sequence[Values]) -> Size | None:
    """The first candidate that varies and has these values; else the number, if it is one."""
    for size in candidates:
        if type(size) is SizeExpr and [size.value(values) for values in at] == list(numbers):
            return size
    return numbers[0] if len(set(numbers)) == 1 else None


def _near(index: int, count: int, shapes: Sequence[Sequence[Size]]) -> Iterator[Size]:
    """Sizes of arguments, those first that stand where the size of the result does."""
    from_end = count - index
    yield from [shape[-from_end] for shape in shapes if len(shape) >= from_end]
    yield from [shape[index] for shape in shapes if len(shape) > index]
    yield from [size for shape in shapes for size in shape]
    yield from [math.prod(shape, start=1) for shape in shapes if shape]
