"""Sizes of results that fakes do not infer.

Data-dependent lengths, and ints that are read from tensors, become symbols that ops of the program define
(`DefinedSizes`). A shape that is known for samples of the symbols only becomes an expression in them
(`likely_geometry`).

For a size of unknown value PyTorch may infer another result than for its value: ``squeeze`` keeps a dimension of
unknown size. Such a call is inferred again, with facts about the sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from thunder_core.errors import InternalError, SizeVariesError, trying
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, TensorProxy
from thunder_core.ir.size import Size, SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, map_leaves
from thunder_core.symbols.checks import SIZE_OF
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_sharing_fakes
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.outcome import Outcome, infer
from thunder_core.tracing.sizes import LARGEST, SMALLEST, Sizes
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.input_sizes import strides_of
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.traced_number import symbol_of

ResultDimension = tuple[int, int]
"""The position of a result among those of a call, and a dimension."""


class DefinedSizes:
    """The sizes that the ops of one recording define.

    Args:
        sizes: the symbols of the compilation.
        trace: the trace that is being recorded.

    Attributes:
        proxies: the sizes as numbers of the trace, in order. Later ops take a size as part of an expression.
    """

    def __init__(self, sizes: Sizes, trace: OpenTrace) -> None:
        self.sizes = sizes
        self._trace = trace
        self.proxies: list[NumberProxy] = []
        self._of_numbers: dict[str, SizeExpr] = {}

    @property
    def allowed(self) -> bool:
        """Whether ops may define sizes here: not in regions, whose inputs and outputs are tensors alone."""
        return not self._trace.outer_ops

    def before_check(self) -> tuple[NumberProxy, ...]:
        """The sizes that are defined so far, for an op that checks a value.

        Raises:
            SizeVariesError: the op is in a region, where these sizes are not available.
        """
        if self.proxies and not self.allowed:
            raise SizeVariesError("a region reads a value after sizes that depend on values", location=user_location())
        return tuple(self.proxies)

    def size_of(self, number: NumberProxy) -> SizeExpr | None:
        """The size that a number of the trace was converted to before; None if it was not."""
        return self._of_numbers.get(number.name)

    def define(self, number: NumberProxy, value: int) -> Size:
        """Write the op that defines a size from a computed int, ``value`` in this call, and return the size."""
        if abs(value) > LARGEST:
            return value
        size = self.sizes.define(value, least=0 if value >= 0 else -LARGEST, checked=value >= 0)
        self._of_numbers[number.name] = size
        self._trace.write(symbol_of(operator.index), (number,), {}, self._named(size))
        return size

    def define_in(self, results: Sequence[Any], dimensions: dict[SizeExpr, ResultDimension]) -> None:
        """Write the ops that define sizes of the results of the last op."""
        for size, (position, dimension) in dimensions.items():
            result = results[position]
            assert isinstance(result, TensorProxy)
            self._trace.write(SIZE_OF, (result, dimension), {}, self._named(size))

    def geometries(
        self, geometries: Sequence[Geometry], samples: Sequence[Sequence[Geometry]], arguments: Sequence[Sequence[Size]]
    ) -> tuple[list[tuple[tuple[Size, ...], tuple[Size, ...]]], dict[SizeExpr, ResultDimension]]:
        """Shapes and strides of results with symbols for data-dependent sizes, and the dimension where each is defined.

        Args:
            geometries: shapes and strides in this call.
            samples: those of calls with other values, which differ in data-dependent sizes. If empty, all sizes are
                data-dependent.
            arguments: the shapes of the call's arguments. A size that equals one of these is likely the same size.
        """
        known: dict[Any, SizeExpr] = {}
        dimensions: dict[SizeExpr, ResultDimension] = {}

        def size_at(position: int, dimension: int) -> Size:
            sizes = tuple([results[position][0][dimension] for results in (geometries, *samples)])
            if len(set(sizes)) == 1 and samples:
                at = dimension, len(geometries[position][0])
                return _likely_size(sizes[0], at, arguments, self.sizes.values)
            key = sizes if samples else (position, dimension)
            if key not in known:
                known[key] = self.sizes.define(sizes[0])
                dimensions[known[key]] = position, dimension
            return known[key]

        symbolic = []
        for position, (shape, stride) in enumerate(geometries):
            sizes = tuple([size_at(position, dimension) for dimension in range(len(shape))])
            symbolic.append((sizes, strides_of(sizes, stride, lambda _, step: step)))
        return symbolic, dimensions

    def _named(self, size: SizeExpr) -> NumberProxy:
        proxy = NumberProxy(str(size), int)
        self.proxies.append(proxy)
        return proxy


def varies_by_values(proxy: TensorProxy, sizes: Sizes) -> bool:
    """Whether ops of the program define sizes of a tensor."""
    return not sizes.defined.keys().isdisjoint(symbols_of(proxy.sizes))


def holds(sizes: Sizes, mode: ObservingFakeMode, symbol: Symbol, call: CallArguments, outcome: Outcome) -> bool:
    """Whether results have the shapes and the storages of ``outcome`` where sizes are 0 and 1, too.

    Args:
        sizes: the symbols of the compilation.
        mode: the mode of the program's fakes.
        call: the call, before it is recorded.
        outcome: the results inferred for the sizes of this call.
    """
    literals = [leaf for leaf in iterate_leaves((call.args, call.kwargs)) if type(leaf) is SizeExpr]
    geometry = [size for proxy in call.proxies for size in proxy.sizes]
    names = set(symbols_of((*geometry, *literals))) & sizes.defined.keys()
    if not names or Tag.LOCAL in symbol.tags or Tag.HIGHER_ORDER in symbol.tags:
        return True
    return all(_holds_at(values, mode, symbol, call, outcome) for values in _edges(sizes, names))


def _edges(sizes: Sizes, names: set[str]) -> Iterator[Mapping[str, int]]:
    """Values of the symbols with one or all of ``names`` at 0 or 1, where the facts so far allow it."""
    groups = [{name} for name in sorted(names)] + ([names] if len(names) > 1 else [])
    for group in groups:
        for edge in (0, 1):
            values = {**sizes.values, **dict.fromkeys(group, edge)}
            if sizes.admits(values):
                yield values


def _holds_at(
    values: Mapping[str, int], mode: ObservingFakeMode, symbol: Symbol, call: CallArguments, outcome: Outcome
) -> bool:
    constant = partial(as_constant, values=values)
    proxies = {proxy.name: proxy.with_sizes(constant) for proxy in call.proxies}
    fakes = make_sharing_fakes(mode, proxies.values())

    def argument(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return fakes[leaf.name]
        return leaf.python_type(1) if isinstance(leaf, NumberProxy) else with_size(leaf, constant)

    if any(isinstance(proxy, OpaqueProxy) for proxy in iterate_proxies((call.args, call.kwargs))):
        return True  # a random function: the result has the shape of its arguments
    args, kwargs = map_leaves(argument, (call.args, call.kwargs))
    with mode.observing() as observed, torch.no_grad(), torch.inference_mode(False):
        try:
            with trying():
                at_edge, _ = infer(symbol.target, args, kwargs, [fakes[proxy.name] for proxy in call.proxies], observed)
        except InternalError:
            raise
        except Exception:  # noqa: BLE001 - a run with such sizes raises the same exception
            return True
    if len(at_edge.results) != len(outcome.results):
        return False
    for result, expected in zip(at_edge.results, outcome.results, strict=True):
        if result.shape != tuple([with_size(size, constant) for size in expected.shape]):
            return False
        shared = (result.same_as, result.shares, result.shares_result)
        if 0 not in result.shape and shared != (expected.same_as, expected.shares, expected.shares_result):
            return False
    return True


Values = Mapping[str, int]
Geometry = tuple[tuple[int, ...], tuple[int, ...]]
_STEPS: Final = (1, 2, 3, 5, 7, 8)


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """The shape and the strides of a tensor with constant sizes."""
    return tuple(tensor.shape), tensor.stride()


def samples(sizes: Sizes) -> list[Values]:
    """Possible values of the symbols by the facts about them: those of this call, larger ones, smaller ones."""
    moved = [_moved(sizes, direction) for direction in (1, -1)]
    return [sizes.values, *[values for values in moved if values != sizes.values]]


def _moved(sizes: Sizes, direction: int) -> Values:
    values = sizes.values
    for index, (name, hint) in enumerate(sizes.values.items()):
        for step in (*_STEPS[index % 3 :], hint, hint * 2, hint * 3):
            candidate = {**values, name: hint + direction * step}
            if sizes.admits(candidate):
                values = candidate
                break
    return values


def value_at(size: Size, values: Values) -> int:
    """The value of a size where the symbols have these values."""
    return size.value(values) if isinstance(size, SizeExpr) else size


def likely_geometry(
    geometries: Sequence[Geometry], arguments: Sequence[Sequence[Size]], at: Sequence[Values]
) -> tuple[tuple[Size, ...], tuple[Size, ...]] | None:
    """The shape and strides of a result as expressions with these values; None where no such expression is known.

    Args:
        geometries: shape and strides, as ints, for each of ``at``.
        arguments: the shapes of the call's arguments; candidates are their sizes, and products of these.
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


def _likely_size(number: int, at: tuple[int, int], arguments: Sequence[Sequence[Size]], values: Values) -> Size:
    """The size of an argument that equals ``number``, a size of a result in this call; ``number`` if there is none.

    Args:
        at: the dimension, and the number of dimensions of the result.
        values: the values of the symbols.
    """
    if number < SMALLEST:
        return number
    size = _likely([number], _near(*at, arguments), [values])
    assert size is not None
    return size


def _likely(numbers: Sequence[int], candidates: Iterator[Size], at: Sequence[Values]) -> Size | None:
    """The first varying candidate with these values; the number if they are all equal; otherwise None."""
    for size in candidates:
        if type(size) is SizeExpr and [size.value(values) for values in at] == list(numbers):
            return size
    return numbers[0] if len(set(numbers)) == 1 else None


def _near(index: int, count: int, shapes: Sequence[Sequence[Size]]) -> Iterator[Size]:
    """Sizes of arguments, those of the same dimension as the size of the result first."""
    from_end = count - index
    yield from [shape[-from_end] for shape in shapes if len(shape) >= from_end]
    yield from [shape[index] for shape in shapes if len(shape) > index]
    yield from [size for shape in shapes for size in shape]
    yield from [math.prod(shape, start=1) for shape in shapes if shape]
