"""Matching of a template with the operations of a program, backwards from its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_plugin_composites.recognition.templates import Hole, Template

_ABSENT: Final = object()
_CONTAINERS: Final = (tuple, list)
_Pairs = tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class PartialMatch:
    """A partial match.

    Attributes:
        values: values of the parameters, by name.
        ops: matched operations of the program by identity, each with its operation of the template.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    ops: Mapping[int, BoundSymbol] = field(default_factory=dict)

    def bind(self, name: str, value: Any) -> PartialMatch | None:
        """The match with a value bound to a parameter; None if another value is bound to it."""
        if name in self.values:
            return self if self.values[name] == value else None
        return PartialMatch({**self.values, name: value}, self.ops)

    def with_op(self, op: BoundSymbol) -> PartialMatch:
        """The match with one more operation."""
        return PartialMatch(self.values, {**self.ops, id(op): op})


@dataclass(frozen=True, slots=True)
class Matching:
    """Matches a template with a program.

    Attributes:
        template: the operations of the pattern.
        producers: the operations of the program, by the names of their results.
        defaults: values of parameters that may be absent.
        exact: False for a template of a sample: its constants match any constant, and its casts may be absent.
    """

    template: Template
    producers: Mapping[str, BoundSymbol]
    defaults: Mapping[str, Any]
    exact: bool

    def matches(self, result: Any, match: PartialMatch) -> Iterator[PartialMatch]:
        """The matches in which ``result`` is the template's result."""
        return self._value(self.template.result, result, match)

    def _value(self, own: Any, given: Any, match: PartialMatch) -> Iterator[PartialMatch]:
        """The matches in which a leaf or container of the template corresponds to one of the program."""
        if isinstance(own, Hole) or (isinstance(own, TensorProxy) and own.name in self.template.parameters):
            yield from self._parameter(own, given, match)
        elif isinstance(own, TensorProxy):
            yield from self._produced(own, given, match)
        elif type(own) in _CONTAINERS:
            if type(given) is type(own) and len(given) == len(own):
                yield from self._all(tuple(zip(own, given, strict=True)), match)
        elif isinstance(own, slice):
            if isinstance(given, slice):
                pairs = (own.start, given.start), (own.stop, given.stop), (own.step, given.step)
                yield from self._all(pairs, match)
        elif same_constant(own, given) if self.exact else not isinstance(given, PROXY_TYPES):
            yield match

    def _parameter(self, own: Hole | TensorProxy, given: Any, match: PartialMatch) -> Iterator[PartialMatch]:
        default = self.defaults.get(own.name, _ABSENT)
        given = default if given is _ABSENT else given
        if isinstance(own, Hole):
            fits = not isinstance(given, PROXY_TYPES)
        else:
            fits = isinstance(given, TensorProxy) or given is default
        found = match.bind(own.name, given) if fits and given is not _ABSENT else None
        if found is not None:
            yield found

    def _produced(self, own: TensorProxy, given: Any, match: PartialMatch) -> Iterator[PartialMatch]:
        op = self.template.producers[own.name]
        producer = self.producers.get(given.name) if isinstance(given, TensorProxy) else None
        if producer is not None and producer.symbol is op.symbol and _place(own, op) == _place(given, producer):
            for pairs in _arguments(op, producer):
                for found in self._all(pairs, match):
                    yield found.with_op(producer)
        if not self.exact and _converts(op):
            yield from self._value(op.args[0], given, match)

    def _all(self, pairs: _Pairs, match: PartialMatch, start: int = 0) -> Iterator[PartialMatch]:
        """The matches in which each pair from that position on corresponds."""
        if start == len(pairs):
            yield match
            return
        own, given = pairs[start]
        for found in self._value(own, given, match):
            yield from self._all(pairs, found, start + 1)


def _arguments(op: BoundSymbol, producer: BoundSymbol) -> Iterator[_Pairs]:
    """Pairs of the arguments of an operation of the template and one of the program, in each valid order."""
    keywords: _Pairs = ()
    if op.kwargs or producer.kwargs:
        names = dict.fromkeys((*op.kwargs, *producer.kwargs))
        keywords = tuple([(op.kwargs.get(name, _ABSENT), producer.kwargs.get(name, _ABSENT)) for name in names])
    yield (*zip_longest(op.args, producer.args, fillvalue=_ABSENT), *keywords)
    if Tag.COMMUTATIVE in op.symbol.tags and len(op.args) == len(producer.args) == 2:
        yield (*zip(op.args, reversed(producer.args), strict=True), *keywords)


def same_constant(one: Any, other: Any) -> bool:
    """Whether two literals are equivalent for floating-point operations: 1 and 1.0 are."""
    kinds = {type(one), type(other)}
    return bool(one == other) and (len(kinds) == 1 or kinds == {int, float})


def _place(proxy: TensorProxy, op: BoundSymbol) -> int:
    """The index of a value among the results of an operation."""
    if type(op.output) is TensorProxy:
        return 0
    return next(index for index, own in enumerate(op.outputs()) if own.name == proxy.name)


def _converts(op: BoundSymbol) -> bool:
    """Whether an operation of a sample may be a cast that is absent if the dtypes agree."""
    first, result = op.args[0] if op.args else None, op.output
    if not (isinstance(first, TensorProxy) and isinstance(result, TensorProxy)):
        return False
    return first.shape == result.shape and first.dtype is not result.dtype


def ends(template: Template) -> Iterator[tuple[Symbol, frozenset[Symbol]]]:
    """The symbols with which a match can end, and the symbols of which one produces an argument of it (or empty).

    These exclude most operations quickly.
    """
    for op in _alternatives(template.result, template):
        arguments = [value for value in op.args if isinstance(value, TensorProxy) and value.name in template.producers]
        yield (
            op.symbol,
            frozenset([before.symbol for value in arguments[:1] for before in _alternatives(value, template)]),
        )


def end_of(template: Template, op: BoundSymbol) -> TensorProxy | None:
    """The result of an operation that may be that of the template; None if there is none."""
    producer = template.producers.get(template.result.name)
    place = 0 if producer is None else _place(template.result, producer)
    results = op.outputs()
    end = results[place] if place < len(results) else None
    return end if isinstance(end, TensorProxy) else None


def _alternatives(value: Any, template: Template) -> Iterator[BoundSymbol]:
    """The operation that produces a value, and those that may replace it if casts are absent."""
    while isinstance(value, TensorProxy) and value.name in template.producers:
        op = template.producers[value.name]
        yield op
        if not _converts(op):
            return
        value = op.args[0]
