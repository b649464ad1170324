"""Sizes that vary between calls: expressions of symbols, as ``s0 * 4``.

A symbol is a number input of the programs that one compilation makes: the prologue reads it from an input's shape, and
hands it to forward, backward, regions and epilogue. In a trace, expressions of symbols stand where plain ints do: among
the sizes of proxies and the arguments of calls.

Nothing here looks at the value of an expression. Two are equal if they have equal terms, so ``==`` may say no for sizes
that always agree, and never says yes for sizes that can differ. Whatever else depends on the value raises
`SizeVariesError`; the compilation then takes its sizes as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol

import torch

from thunder_core.errors import SizeVariesError


class SizeScope(Protocol):
    """The symbols of one compilation. Expressions of two compilations are never equal."""

    def symint(self, size: SizeExpr) -> torch.SymInt:
        """The expression as fakes have it."""
        ...

    def size(self, value: int | torch.SymInt) -> Size:
        """A number of fakes as traces have it."""
        ...

    def text(self, size: SizeExpr) -> str:
        """The expression as Python."""
        ...

    def symbols(self, size: SizeExpr) -> tuple[str, ...]:
        """Names of the symbols in the expression."""
        ...

    def value(self, size: SizeExpr, values: Mapping[str, int]) -> int:
        """What the expression is where the symbols have these values."""
        ...


class SizeExpr:
    """An int that the program knows only when it runs. Immutable and hashable.

    Attributes:
        expression: its terms, in the form of `scope`.
        hint: its value when the program was recorded. Programs must not depend on it; policies may.
        scope: the compilation that it belongs to.
    """

    __slots__ = ("_hash", "expression", "hint", "scope")

    expression: Any
    hint: int
    scope: SizeScope

    def __init__(self, expression: Any, hint: int, scope: SizeScope) -> None:
        object.__setattr__(self, "expression", expression)
        object.__setattr__(self, "hint", hint)
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "_hash", hash((expression, id(scope))))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable")

    @property
    def symint(self) -> torch.SymInt:
        """The expression as fakes have it."""
        return self.scope.symint(self)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in it."""
        return self.scope.symbols(self)

    def value(self, values: Mapping[str, int]) -> int:
        """What it is where the symbols have these values."""
        return self.scope.value(self, values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SizeExpr):
            return False
        return self.scope is other.scope and bool(self.expression == other.expression)

    def __hash__(self) -> int:
        hashed: int = self._hash
        return hashed

    def __str__(self) -> str:
        return self.scope.text(self)

    __repr__ = __str__

    def _computed(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Size:
        if not all(isinstance(operand, int | SizeExpr) for operand in (left, right)):
            return NotImplemented
        return self.scope.size(operation(on_fakes(left), on_fakes(right)))

    def __add__(self, other: Size) -> Size:
        return self._computed(operator.add, self, other)

    def __radd__(self, other: Size) -> Size:
        return self._computed(operator.add, other, self)

    def __sub__(self, other: Size) -> Size:
        return self._computed(operator.sub, self, other)

    def __rsub__(self, other: Size) -> Size:
        return self._computed(operator.sub, other, self)

    def __mul__(self, other: Size) -> Size:
        return self._computed(operator.mul, self, other)

    def __rmul__(self, other: Size) -> Size:
        return self._computed(operator.mul, other, self)

    def __floordiv__(self, other: Size) -> Size:
        return self._computed(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return self._computed(operator.floordiv, other, self)

    def __mod__(self, other: Size) -> Size:
        return self._computed(operator.mod, self, other)

    def __rmod__(self, other: Size) -> Size:
        return self._computed(operator.mod, other, self)

    def __neg__(self) -> Size:
        return self._computed(operator.sub, 0, self)

    def _value(self, *_: Any) -> NoReturn:
        raise SizeVariesError(f"a part of the compiler needs the value of the size {self}, which varies between calls")

    __bool__ = __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _value


Size = int | SizeExpr
"""A size, a stride, an offset, or another int of a program: constant, or an expression of symbols."""


def on_fakes(value: Any) -> Any:
    """A size as fakes have it; a tuple or list likewise, item by item. Anything else as it is."""
    if isinstance(value, SizeExpr):
        return value.symint
    if type(value) is tuple or type(value) is list:
        return type(value)([on_fakes(item) for item in value])
    return value


def hint_of(size: Size) -> int:
    """What a size was when the program was recorded."""
    return size.hint if isinstance(size, SizeExpr) else size


def are_constant(sizes: Iterable[Any]) -> bool:
    """Whether none of the sizes varies."""
    return not any(type(size) is SizeExpr for size in sizes)


def symbols_of(values: Iterable[Any]) -> Iterator[str]:
    """The names of the symbols among the values, as they appear, repeated ones repeated."""
    for value in values:
        if type(value) is SizeExpr:
            yield from value.symbols


def as_constant(value: Any, values: Mapping[str, int] | None = None) -> Any:
    """A size where the symbols have these values, by default those of the recording; anything else as it is."""
    if type(value) is not SizeExpr:
        return value
    return value.hint if values is None else value.value(values)
