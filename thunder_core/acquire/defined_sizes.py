"""Sizes that lines of the program define: lengths that values decide, and ints that are read from tensors.

PyTorch's general way may differ from what it does there: ``squeeze`` keeps a dimension of unknown size. Such a call is
inferred anew, with facts about the sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.input_sizes import strides_of
from thunder_core.acquire.likely_sizes import Geometry, likely_size
from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.traced_number import symbol_of
from thunder_core.errors import SizeVariesError, trying
from thunder_core.ir.proxy import PROXY_TYPES, NumberProxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.checks import SIZE_OF
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_sharing_fakes
from thunder_core.tracing.outcome import Outcome, infer
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


def varies_by_values(proxy: TensorProxy, sizes: Sizes) -> bool:
    """Whether lines of the program define sizes of a tensor."""
    return not sizes.defined.keys().isdisjoint(symbols_of((*proxy.shape, *proxy.stride, proxy.offset)))


def holds(sizes: Sizes, mode: ObservingFakeMode, symbol: Symbol, call: Call, outcome: Outcome) -> bool:
    """Whether results have the shapes, and share the memory, that an outcome says where sizes are 0 and 1.

    Args:
        sizes: of the compilation.
        mode: of the program's fakes.
        call: before it is recorded.
        outcome: what was inferred for the sizes of this call.
    """
    literals = [leaf for leaf in iterate_leaves((call.args, call.kwargs)) if type(leaf) is SizeExpr]
    geometry = [size for proxy in call.proxies for size in (*proxy.shape, *proxy.stride, proxy.offset)]
    names = set(symbols_of((*geometry, *literals))) & sizes.defined.keys()
    if not names or Tag.LOCAL in symbol.tags or Tag.HIGHER_ORDER in symbol.tags:
        return True
    return all(_holds_at(values, mode, symbol, call, outcome) for values in _edges(sizes, names))


def _edges(sizes: Sizes, names: set[str]) -> Iterator[Mapping[str, int]]:
    """Values of the symbols with one of these, or all, at 0 or 1, as far as the facts so far admit them."""
    groups = [{name} for name in sorted(names)] + ([names] if len(names) > 1 else [])
    for group in groups:
        for edge in (0, 1):
            values = {**sizes.values, **dict.fromkeys(group, edge)}
            if sizes.admits(values):
                yield values


def _holds_at(values: Mapping[str, int], mode: ObservingFakeMode, symbol: Symbol, call: Call, outcome: Outcome) -> bool:
    constant = partial(as_constant, values=values)
    proxies = {proxy.name: proxy.with_sizes(constant) for proxy in call.proxies}
    fakes = make_sharing_fakes(mode, proxies.values())

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return fakes[leaf.name]
        return leaf.python_type(1) if isinstance(leaf, NumberProxy) else with_size(leaf, constant)

    if any(isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, TensorProxy | NumberProxy) for leaf in _leaves(call)):
        return True  # a random function: the result has the shape of its arguments
    args, kwargs = map_leaves(argument, (call.args, call.kwargs))
    with mode.observing() as observed, torch.no_grad(), torch.inference_mode(False):
        try:
            with trying():
                found, _ = infer(symbol.target, args, kwargs, [fakes[proxy.name] for proxy in call.proxies], observed)
        except Exception:  # noqa: BLE001 - a run with such sizes raises it
            return True
    if len(found.results) != len(outcome.results):
        return False
    for result, expected in zip(found.results, outcome.results, strict=True):
        if result.shape != tuple([with_size(size, constant) for size in expected.shape]):
            return False
        shared = (result.same_as, result.shares, result.shares_result)
        if 0 not in result.shape and shared != (expected.same_as, expected.shares, expected.shares_result):
            return False
    return True


def _leaves(call: Call) -> Iterator[Any]:
    return iterate_leaves((call.args, call.kwargs))
