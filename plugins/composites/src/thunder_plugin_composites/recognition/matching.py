"""Match a template with the lines of a program, backwards from its result."""

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
class Match:
    """A partial match.

    Attributes:
        values: of the parameters, by name.
        lines: of the program, by identity; each is a line of the template.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[int, BoundSymbol] = field(default_factory=dict)

    def bind(self, name: str, value: Any) -> Match | None:
        """The match with a value bound to a parameter; None if another value is bound to it."""
        if name in self.values:
            return self if self.values[name] == value else None
        return Match({**self.values, name: value}, self.lines)

    def with_line(self, line: BoundSymbol) -> Match:
        """The match with one more line."""
        return Match(self.values, {**self.lines, id(line): line})


@dataclass(frozen=True, slots=True)
class Matching:
    """Matches a template with a program.

    Attributes:
        template: the lines of the pattern.
        producers: the lines of the program, by the names of their results.
        defaults: values of parameters that may be absent.
        exact: False for a template of a sample: its constants then match any constant, and its casts may be absent.
    """

    template: Template
    producers: Mapping[str, BoundSymbol]
    defaults: Mapping[str, Any]
    exact: bool

    def matches(self, result: Any, match: Match) -> Iterator[Match]:
        """The ways in which ``result`` can be the template's."""
        return self._value(self.template.result, result, match)

    def _value(self, own: Any, given: Any, match: Match) -> Iterator[Match]:
        """The ways in which a leaf or container of the template can be one of the program."""
        if isinstance(own, Hole) or (isinstance(own, TensorProxy) and own.name in self.template.parameters):
            yield from self._parameter(own, given, match)
        elif isinstance(own, TensorProxy):
            yield from self._made(own, given, match)
        elif type(own) in _CONTAINERS:
            if type(given) is type(own) and len(given) == len(own):
                yield from self._all(tuple(zip(own, given, strict=True)), match)
        elif isinstance(own, slice):
            if isinstance(given, slice):
                pairs = (own.start, given.start), (own.stop, given.stop), (own.step, given.step)
                yield from self._all(pairs, match)
        elif same_constant(own, given) if self.exact else not isinstance(given, PROXY_TYPES):
            yield match

    def _parameter(self, own: Hole | TensorProxy, given: Any, match: Match) -> Iterator[Match]:
        default = self.defaults.get(own.name, _ABSENT)
        given = default if given is _ABSENT else given
        if isinstance(own, Hole):
            fits = not isinstance(given, PROXY_TYPES)
        else:
            fits = isinstance(given, TensorProxy) or given is default
        found = match.bind(own.name, given) if fits and given is not _ABSENT else None
        if found is not None:
            yield found

    def _made(self, own: TensorProxy, given: Any, match: Match) -> Iterator[Match]:
        line = self.template.producers[own.name]
        producer = self.producers.get(given.name) if isinstance(given, TensorProxy) else None
        if producer is not None and producer.symbol is line.symbol and _place(own, line) == _place(given, producer):
            for pairs in _arguments(line, producer):
                for found in self._all(pairs, match):
                    yield found.with_line(producer)
        if not self.exact and _converts(line):
            yield from self._value(line.args[0], given, match)

    def _all(self, pairs: _Pairs, match: Match, start: int = 0) -> Iterator[Match]:
        """The ways in which each pair from that position on can be one value."""
        if start == len(pairs):
            yield match
            return
        own, given = pairs[start]
        for found in self._value(own, given, match):
            yield from self._all(pairs, found, start + 1)


def _arguments(line: BoundSymbol, producer: BoundSymbol) -> Iterator[_Pairs]:
    """The arguments of a line of the template beside those of one of the program, in each order that they may have."""
    keywords: _Pairs = ()
    if line.kwargs or producer.kwargs:
        names = dict.fromkeys((*line.kwargs, *producer.kwargs))
        keywords = tuple([(line.kwargs.get(name, _ABSENT), producer.kwargs.get(name, _ABSENT)) for name in names])
    yield (*zip_longest(line.args, producer.args, fillvalue=_ABSENT), *keywords)
    if Tag.COMMUTATIVE in line.symbol.tags and len(line.args) == len(producer.args) == 2:
        yield (*zip(line.args, reversed(producer.args), strict=True), *keywords)


def same_constant(one: Any, other: Any) -> bool:
    """Whether two literals mean the same to an operation on tensors of floating point: 1 and 1.0 do."""
    kinds = {type(one), type(other)}
    return bool(one == other) and (len(kinds) == 1 or kinds == {int, float})


def _place(proxy: TensorProxy, line: BoundSymbol) -> int:
    """Which result of a line a value is."""
    if type(line.output) is TensorProxy:
        return 0
    return next(index for index, own in enumerate(line.outputs()) if own.name == proxy.name)


def _converts(line: BoundSymbol) -> bool:
    """Whether a line of a sample may be one that is absent where the dtypes agree."""
    first, result = line.args[0] if line.args else None, line.output
    if not (isinstance(first, TensorProxy) and isinstance(result, TensorProxy)):
        return False
    return first.shape == result.shape and first.dtype is not result.dtype


def ends(template: Template) -> Iterator[tuple[Symbol, frozenset[Symbol]]]:
    """The symbols that a match can end with; and those of which one makes an argument of it, or none if there are none.

    That tells most lines apart from patterns at once.
    """
    for line in _alternatives(template.result, template):
        made = [value for value in line.args if isinstance(value, TensorProxy) and value.name in template.producers]
        yield line.symbol, frozenset([before.symbol for value in made[:1] for before in _alternatives(value, template)])


def end_of(template: Template, line: BoundSymbol) -> TensorProxy | None:
    """Which result of a program's line may be that of the template; None if the line has none in its place."""
    producer = template.producers.get(template.result.name)
    place = 0 if producer is None else _place(template.result, producer)
    results = line.outputs()
    end = results[place] if place < len(results) else None
    return end if isinstance(end, TensorProxy) else None


def _alternatives(value: Any, template: Template) -> Iterator[BoundSymbol]:
    """The line that makes a value, and those that may stand for it where conversions are absent."""
    while isinstance(value, TensorProxy) and value.name in template.producers:
        line = template.producers[value.name]
        yield line
        if not _converts(line):
            return
        value = line.args[0]
