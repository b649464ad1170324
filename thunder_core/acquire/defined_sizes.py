"""Sizes that lines of the program define: lengths that values decide, and ints that are read from tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from thunder_core.acquire.input_sizes import strides_of
from thunder_core.acquire.likely_sizes import Geometry, likely_size
from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.traced_number import symbol_of
from thunder_core.errors import SizeVariesError
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.symbols.checks import SIZE_OF
from thunder_core.tracing.sizes import LARGEST, Sizes
from thunder_core.tracing.user_frames import user_location

Place = tuple[int, int]
"""The position of a result among those of a call, and a dimension."""


class DefinedSizes:
    """The sizes that the lines of one recording define.

    Args:
        sizes: of the compilation.
        trace: of the recording.

    Attributes:
        proxies: each as a number of the trace, in order. A line after it takes the size as part of an expression.
    """

    def __init__(self, sizes: Sizes, trace: OpenTrace) -> None:
        self.sizes = sizes
        self._trace = trace
        self.proxies: list[NumberProxy] = []
        self._of_numbers: dict[str, SizeExpr] = {}

    @property
    def allowed(self) -> bool:
        """Whether lines may define sizes here. In regions, which take and give tensors alone, sizes are constants."""
        return not self._trace.outer_lines

    def before_check(self) -> tuple[NumberProxy, ...]:
        """The sizes that are defined so far, for a line that checks a value.

        Raises:
            SizeVariesError: the line is in a region, which does not know them.
        """
        if self.proxies and not self.allowed:
            raise SizeVariesError("a region reads a value, after values have decided sizes", location=user_location())
        return tuple(self.proxies)

    def known(self, number: NumberProxy) -> SizeExpr | None:
        """The size that a number of the trace was taken for before."""
        return self._of_numbers.get(number.name)

    def of_number(self, number: NumberProxy, value: int) -> Size:
        """The size for an int that a line computes, which is ``value`` in this call, after the line that defines it."""
        if abs(value) > LARGEST:
            return value
        size = self.sizes.define(value, least=0 if value >= 0 else -LARGEST, checked=value >= 0)
        self._of_numbers[number.name] = size
        self._trace.write(symbol_of(operator.index), (number,), {}, self._named(size))
        return size

    def write_lines(self, results: Sequence[Any], found: dict[SizeExpr, Place]) -> None:
        """The lines that define sizes of the results of the line before."""
        for size, (position, dimension) in found.items():
            result = results[position]
            assert isinstance(result, TensorProxy)
            self._trace.write(SIZE_OF, (result, dimension), {}, self._named(size))

    def geometries(
        self, found: Sequence[Geometry], samples: Sequence[Sequence[Geometry]], arguments: Sequence[Sequence[Size]]
    ) -> tuple[list[tuple[tuple[Size, ...], tuple[Size, ...]]], dict[SizeExpr, Place]]:
        """Shapes and strides of results with symbols for the sizes that values decide, and where each is defined.

        Args:
            found: those of this call.
            samples: those of calls with other values, which differ where values decide. Without any, all sizes do.
            arguments: the shapes of the call's arguments. Other sizes that equal one of theirs are likely to be that.
        """
        known: dict[Any, SizeExpr] = {}
        places: dict[SizeExpr, Place] = {}

        def size_at(position: int, dimension: int) -> Size:
            sizes = tuple([results[position][0][dimension] for results in (found, *samples)])
            if len(set(sizes)) == 1 and samples:
                at = dimension, len(found[position][0])
                return likely_size(sizes[0], at, arguments, self.sizes.values)
            key = sizes if samples else (position, dimension)
            if key not in known:
                known[key] = self.sizes.define(sizes[0])
                places[known[key]] = position, dimension
            return known[key]

        made = []
        for position, (shape, stride) in enumerate(found):
            own = tuple([size_at(position, dimension) for dimension in range(len(shape))])
            made.append((own, strides_of(own, stride, lambda _, step: step)))
        return made, places

    def _named(self, size: SizeExpr) -> NumberProxy:
        proxy = NumberProxy(str(size), int)
        self.proxies.append(proxy)
        return proxy
