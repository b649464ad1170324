"""The rewrite engine: replace the ops that match a pattern by other ops."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.tracing.trace_call import rewritten_form


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a pattern. Subclasses can have further attributes.

    Attributes:
        ops: all ops to replace, including the one at which the pattern matches.
    """

    ops: tuple[BoundSymbol, ...]


M = TypeVar("M", bound=Match)


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """A pattern and its replacement, for the ops of one trace or log.

    Attributes:
        pattern: returns the matches at an op, the preferred one first.
        replacement: returns the ops that replace the op at which the pattern matches, while the match's other ops are
            removed; None to leave the match unchanged.
    """

    pattern: Callable[[BoundSymbol], Iterable[M]]
    replacement: Callable[[M], Sequence[BoundSymbol] | None]


def rewrite(trace: Trace, rules: Sequence[Rule[Any]], provenance: str, *, backwards: bool = False) -> Trace:
    """Apply the rules to the ops of a trace; return ``trace`` itself if none has a replacement. See `rewrite_ops`."""
    ops = rewrite_ops(trace.symbols, rules, backwards=backwards)
    return trace if ops is trace.symbols else trace.with_symbols(ops, provenance)


def rewrite_ops(
    ops: Sequence[BoundSymbol], rules: Sequence[Rule[Any]], *, backwards: bool = False
) -> Sequence[BoundSymbol]:
    """Apply at each op the first rule with a replacement; return ``ops`` itself if there is none.

    Patterns match the given ops, not replacements. Of two matches that share an op, the first visited is replaced.

    Args:
        backwards: whether ops are visited from last to first.
    """
    instead: dict[int, Sequence[BoundSymbol]] = {}
    for op in reversed(ops) if backwards else ops:
        if id(op) not in instead:
            instead |= next((new for rule in rules if (new := _replaced(rule, op, instead))), {})
    return [new for op in ops for new in instead.get(id(op), (op,))] if instead else ops


def _replaced(rule: Rule[Any], op: BoundSymbol, taken: Container[int]) -> dict[int, Sequence[BoundSymbol]] | None:
    """The replacements of a rule's match at ``op``, by the ``id`` of the replaced op; None without a match."""
    for match in rule.pattern(op):
        if any(id(one) in taken for one in match.ops):
            continue
        new = rule.replacement(match)
        if new is not None:
            return {**{id(one): () for one in match.ops}, id(op): new}
    return None


class Substitution:
    """Builds the ops that replace a match in a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def builder(self) -> Builder:
        """Names and storages for the new ops."""
        return Builder.of(self._trace)

    def ops_of(
        self, function: Callable[..., Any], args: tuple[Any, ...], result: Any, at: BoundSymbol
    ) -> tuple[BoundSymbol, ...] | None:
        """The calls that ``function(*args)`` makes, with the proxies of ``result`` as its result.

        They are recorded once for arguments of equal metadata. ``function`` must be a module's attribute; it is called
        with fake tensors.

        Args:
            at: the op whose context and location the new ops get.

        Returns:
            The ops; None if ``function`` fails for these arguments, or if its result has other metadata.
        """
        pattern = BoundSymbol(_symbol(function), args, {}, result, context=at.context, location=at.location)
        try:
            form = rewritten_form(pattern, function, self._trace.context)
        except LoweringError:
            return None
        return self.builder.inline(form, pattern)


@cache
def _symbol(function: Callable[..., Any]) -> Symbol:
    """The symbol of a function, cached so that equal patterns have equal keys. It never occurs in a trace."""
    return Symbol(f"{function.__module__}.{function.__name__}", function)
