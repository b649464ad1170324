"""The engine of passes that replace some lines of a trace by others, wherever a pattern matches."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, Protocol, TypeVar

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.tracing.trace_call import rewritten_form


class Match(Protocol):
    """Lines that match a pattern. Passes have classes for what else they know about a match."""

    @property
    def lines(self) -> Sequence[BoundSymbol]:
        """All lines that are replaced, that at which the pattern matches included."""


@dataclass(frozen=True, slots=True)
class Lines:
    """A match about which no more is known than its lines."""

    lines: tuple[BoundSymbol, ...]


M = TypeVar("M", bound=Match)


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """What is replaced, and by what. Both functions know the trace that they are for.

    Attributes:
        pattern: the matches at a line, the preferred one first.
        replacement: the lines that take the place of the line at which the pattern matches; the others of the match go
            away. None if the match is to stay as it is.
    """

    pattern: Callable[[BoundSymbol], Iterable[M]]
    replacement: Callable[[M], Sequence[BoundSymbol] | None]


def rewrite(trace: Trace, rules: Sequence[Rule[Any]], provenance: str, *, backwards: bool = False) -> Trace:
    """The trace with the first replacement that a rule has at each line; itself if there is none.

    Patterns see the lines of ``trace``, not those that replace them. Of two matches that share a line, the one that is
    first is replaced.

    Args:
        backwards: whether lines are visited from the last one to the first.
    """
    instead: dict[int, Sequence[BoundSymbol]] = {}
    for line in reversed(trace.symbols) if backwards else trace.symbols:
        if id(line) not in instead:
            instead |= next((new for rule in rules if (new := _replaced(rule, line, instead))), {})
    if not instead:
        return trace
    lines = [part for line in trace.symbols for part in instead.get(id(line), (line,))]
    return trace.with_symbols(lines, provenance)


def _replaced(rule: Rule[Any], line: BoundSymbol, taken: Container[int]) -> dict[int, Sequence[BoundSymbol]] | None:
    """By the identities of the lines that a rule replaces, what takes their places."""
    for match in rule.pattern(line):
        if any(id(one) in taken for one in match.lines):
            continue
        new = rule.replacement(match)
        if new is not None:
            return {**{id(one): () for one in match.lines}, id(line): new}
    return None


class Substitution:
    """Makes lines for a trace that take the place of a pattern in it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def builder(self) -> Builder:
        """Names and storages for the new lines."""
        return Builder.of(self._trace)

    def lines(
        self, function: Callable[..., Any], args: tuple[Any, ...], result: Any, at: BoundSymbol
    ) -> tuple[BoundSymbol, ...] | None:
        """The calls that ``function(*args)`` makes, with the proxies of ``result`` as its result.

        They are recorded once for arguments of equal metadata. ``function`` belongs to a module and is called with fake
        tensors.

        Args:
            at: the line whose context and place in the user's program they have.

        Returns:
            None where ``function`` fails for these arguments, or where its result has other metadata.
        """
        pattern = BoundSymbol(_symbol(function), args, {}, result, context=at.context, location=at.location)
        try:
            form = rewritten_form(pattern, function, self._trace.context)
        except LoweringError:
            return None
        return self.builder.inline(form, pattern)


@cache
def _symbol(function: Callable[..., Any]) -> Symbol:
    """One for each function, so that equal patterns have equal keys. It never is in a trace."""
    return Symbol(f"{function.__module__}.{function.__name__}", function)
