"""Matches of patterns in one program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace, producers_of
from thunder_core.symbols.registry import registry
from thunder_plugin_composites.recognition.matching import Match, Matching, end_of
from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.recognition.templates import recorded, sampled


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A match of a pattern.

    Attributes:
        composite: the call that is equivalent to the lines.
        lines: those that it replaces.
    """

    composite: BoundSymbol
    lines: tuple[BoundSymbol, ...]


class Program:
    """The lines of a trace, to find patterns among them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def find(self, pattern: Pattern, line: BoundSymbol) -> PatternMatch | None:
        """The match that ends with ``line``, if any.

        The lines are first compared with the pattern as recorded on its sample, which binds its parameters; then with
        the pattern as recorded on the bound values: sizes, constants and casts must be equal.
        """
        sample, defaults = sampled(pattern), pattern.defaults
        end = end_of(sample, line)
        if end is None:
            return None
        for candidate in Matching(sample, self.trace.producers, defaults, exact=False).matches(end, Match()):
            values = {**defaults, **candidate.values}
            if values.keys() != pattern.sample.keys():
                continue
            composite = _call(pattern, values, line, end)
            try:
                template = recorded(pattern, values, composite, self.trace.context)
            except LoweringError:
                continue
            if template.meant != metadata_of(end):  # the program rounds less, or more
                continue
            exact = Matching(template, self.trace.producers, defaults, exact=True)
            for match in exact.matches(end, Match(values)):
                return PatternMatch(composite, tuple(match.lines.values()))
        return None

    def obstacle(self, match: PatternMatch) -> str | None:
        """Why the lines cannot become one call; None if they can."""
        lines = match.lines
        if not all(line.effects.pure and line.symbol.executor is None for line in lines):
            return "a line of it has effects"
        if any(line.context != match.composite.context for line in lines):
            return "its lines run under different modes (gradients, autocast)"
        if (match.composite.context or self.trace.context).autocast:
            return "its lines run under autocast"
        result = match.composite.output.name
        inside = producers_of(lines).keys() - {result}
        read = Counter([proxy.name for line in lines for proxy in line.inputs()])
        outside = [name for name in inside if self.trace.use_count(name) != read[name]]
        outside += [proxy.name for proxy in match.composite.inputs() if proxy.name in inside]
        return f"{min(outside)}, a value inside of it, is read by others too" if outside else None


def _call(pattern: Pattern, values: Mapping[str, Any], line: BoundSymbol, end: TensorProxy) -> BoundSymbol:
    """The composite with these arguments, in the place of ``line`` and of its result ``end``."""
    symbol, args, kwargs = registry.resolve(pattern.composite, (), {**values, **pattern.arguments})
    return BoundSymbol(symbol, args, kwargs, end, context=line.context, location=line.location)
