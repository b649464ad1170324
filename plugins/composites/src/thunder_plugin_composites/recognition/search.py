"""Search for matches of patterns in a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace, producers_of
from thunder_core.passes.rewrite import Match
from thunder_core.symbols.registry import registry
from thunder_plugin_composites.recognition.matching import Matching, PartialMatch, end_of
from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.recognition.templates import recorded, sampled


@dataclass(frozen=True, slots=True)
class PatternMatch(Match):
    """A match of a pattern.

    Attributes:
        composite: the call that replaces the operations.
    """

    composite: BoundSymbol


class Program:
    """The operations of a trace, for the search."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def find(self, pattern: Pattern, op: BoundSymbol) -> PatternMatch | None:
        """The match that ends with ``op``, if any.

        The operations are first compared with the pattern as recorded on its sample, which binds its parameters, and
        then with the pattern as recorded on the bound values: sizes, constants and casts must be equal.
        """
        sample, defaults = sampled(pattern), pattern.defaults
        end = end_of(sample, op)
        if end is None:
            return None
        for candidate in Matching(sample, self.trace.producers, defaults, exact=False).matches(end, PartialMatch()):
            values = {**defaults, **candidate.values}
            if values.keys() != pattern.sample.keys():
                continue
            composite = _call(pattern, values, op, end)
            try:
                template = recorded(pattern, values, composite, self.trace.context)
            except LoweringError:
                continue
            if template.meant != metadata_of(end):  # the program has fewer or more roundings
                continue
            exact = Matching(template, self.trace.producers, defaults, exact=True)
            for match in exact.matches(end, PartialMatch(values)):
                return PatternMatch(tuple(match.ops.values()), composite)
        return None

    def obstacle(self, match: PatternMatch) -> str | None:
        """The reason why the operations cannot become one call; None if they can."""
        ops = match.ops
        if not all(op.effects.pure and op.symbol.executor is None for op in ops):
            return "one of its operations has effects"
        if any(op.context != match.composite.context for op in ops):
            return "its operations run in different contexts (grad mode, autocast)"
        if (match.composite.context or self.trace.context).autocast:
            return "its operations run under autocast"
        result = match.composite.output.name
        inside = producers_of(ops).keys() - {result}
        read = Counter([proxy.name for op in ops for proxy in op.inputs()])
        outside = [name for name in inside if self.trace.use_count(name) != read[name]]
        outside += [proxy.name for proxy in match.composite.inputs() if proxy.name in inside]
        return f"{min(outside)}, an intermediate value, has other users" if outside else None


def _call(pattern: Pattern, values: Mapping[str, Any], op: BoundSymbol, end: TensorProxy) -> BoundSymbol:
    """The call of the composite with these arguments, in place of ``op`` with its result ``end``."""
    symbol, args, kwargs = registry.resolve(pattern.composite, (), {**values, **pattern.arguments})
    return BoundSymbol(symbol, args, kwargs, end, context=op.context, location=op.location)
