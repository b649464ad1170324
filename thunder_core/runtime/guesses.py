"""The values of tensors that Python code of a program read, and that its runs check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation, at
from thunder_core.ir.size import SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, with_bodies
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.symbols.checks import SHAPES, are_alike, checked_value, is_same, unmet
from thunder_core.tracing.sizes import SizeFact, Sizes


@dataclass(frozen=True)
class Guess:
    """A value that the program read when it was recorded, and that its runs check.

    Attributes:
        reader: the function that reads it, one of `thunder_core.symbols.checks.READERS`.
        text: the expression: ``bool(t3)``, ``the shape of t4``.
        value: the recorded value, with symbols for sizes of inputs.
        location: the user's line; None if it is unknown.
        conditions: Python of conditions on the symbols that the value defines.
        user_conditions: the subset of ``conditions`` that the user's program evaluates.
    """

    reader: str
    text: str
    value: Any
    location: SourceLocation | None
    conditions: tuple[str, ...] = ()
    user_conditions: tuple[str, ...] = ()

    def describe(self) -> str:
        """The expression, its value and location: ``bool(t3) is True, at model.py:7``."""
        value = ", ".join([str(shape) for shape, _ in self.value]) if self.reader == SHAPES else _short(self.value)
        only = f" ({', '.join(self.user_conditions)})" if self.user_conditions else ""
        return f"{self.text} is {value}{only}{at(self.location)}"

    def with_defined_symbols(self, value: Any, known: Mapping[str, int]) -> dict[str, int] | None:
        """The values of the known symbols and of those that this guess defines; None if its check would fail.

        Args:
            value: the value in the call.
            known: the values of the symbols of inputs and of earlier guesses.
        """
        symbols = dict(known)

        def define(leaf: Any, actual: Any) -> None:
            if type(leaf) is SizeExpr and type(actual) is int and str(leaf) in leaf.symbols:
                symbols.setdefault(str(leaf), actual)

        _pairwise(define, self.value, value)
        if _undefined(self.value, symbols):
            return None
        expected = with_symbols(self.value, symbols)
        same = are_alike(value, expected) if self.reader == SHAPES else is_same(value, expected)
        return symbols if same and unmet(self.conditions, symbols) is None else None


def _pairwise(function: Callable[[Any, Any], None], one: Any, other: Any) -> None:
    """Call a function with each pair of corresponding leaves of two nested tuples, as far as their structures agree."""
    if not isinstance(one, tuple | list):
        function(one, other)
    elif isinstance(other, tuple | list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            _pairwise(function, left, right)


def _undefined(value: Any, symbols: Mapping[str, int]) -> bool:
    """Whether a value contains a symbol that ``symbols`` lacks."""
    return any(name not in symbols for name in symbols_of(iterate_leaves(value)))


def with_symbols(value: Any, symbols: Mapping[str, int]) -> Any:
    """A value with the values of its symbols."""
    return map_leaves(lambda leaf: with_size(leaf, partial(as_constant, values=symbols)), value)


def guesses_of(trace: Trace, sizes: Sizes | None = None) -> tuple[Guess, ...]:
    """The values that a program checks, in order.

    Args:
        trace: the acquired trace.
        sizes: its symbols; None if all sizes are constants.
    """
    facts = {} if sizes is None else sizes.facts_of_defined()
    return tuple([_guess(bound, facts) for bound in sorted(value_checks(trace), key=lambda bound: bound.args[0])])


def value_checks(trace: Trace) -> Iterator[BoundSymbol]:
    """The ops that check values, including those in checkpoint regions."""
    return (bound for bound in with_bodies(trace.symbols) if Tag.GUESS in bound.symbol.tags)


def _guess(bound: BoundSymbol, facts: Mapping[str, Sequence[SizeFact]]) -> Guess:
    """The value that an op checks, with the facts about the sizes that it defines."""
    reader, args, value = checked_value(bound)
    names = ", ".join([getattr(arg, "name", repr(arg)) for arg in args])
    text = {SHAPES: f"the shape of {names}", "number": names}.get(reader, f"{reader}({names})")
    names_of_sizes = dict.fromkeys(symbols_of(iterate_leaves(value)))
    defined = [fact for name in names_of_sizes for fact in facts.get(name, ())]
    conditions = tuple(dict.fromkeys([fact.condition for fact in defined]))
    user_conditions = tuple(dict.fromkeys([fact.condition for fact in defined if fact.location is not None]))
    return Guess(reader, text, value, bound.location, conditions, user_conditions)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
