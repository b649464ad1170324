"""Sizes that vary between calls: expressions of symbols, as ``s0 * 4``.

A symbol is an integer input of the programs of one compilation: the prologue reads it from an input's shape and passes
it to forward, backward, regions and epilogue. In a trace, a `SizeExpr` can take the place of any int: in the sizes of
proxies and the arguments of ops.

Nothing here uses the value of an expression. Two expressions are equal if their terms are, so ``==`` can be False for
sizes that always agree, and is never True for sizes that can differ. Any other operation that needs the value raises
`SizeVariesError`; the program is then compiled with constant sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol
from weakref import ref

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.ir.number_functions import NAMES

SIZE_NAMES: Final[Mapping[str, Any]] = NAMES
"""Globals that printed conditions on sizes and numbers use besides builtins."""


class SizeScope(Protocol):
    """The symbols of one compilation. Expressions of different compilations, by ``number``, are never equal."""

    number: int

    def symint(self, size: SizeExpr) -> torch.SymInt:
        """The expression as a SymInt for fake tensors."""
        ...

    def size(self, value: int | torch.SymInt) -> Size:
        """A size of fake tensors as a size for traces."""
        ...

    def text_of(self, expression: Any) -> str:
        """An expression as Python source."""
        ...

    def symbols_of(self, expression: Any) -> tuple[str, ...]:
        """Names of the symbols in an expression."""
        ...

    def value(self, size: SizeExpr, values: Mapping[str, int]) -> int:
        """The value of the expression for these values of its symbols."""
        ...

    def least(self, size: SizeExpr) -> float:
        """A lower bound of the expression that follows from the facts about its symbols."""
        ...

    def is_equal(self, one: Size, other: Size) -> bool:
        """Whether the facts imply that both are always equal."""
        ...


class SizeExpr:
    """An int whose value is determined when the program runs. Immutable and hashable.

    Attributes:
        expression: its terms, as an expression of `scope`.
        hint: its value when the program was recorded. Heuristics may use it; results must not depend on it.
        symbols: names of its symbols.
    """

    __slots__ = ("_hash", "_scope", "_scope_number", "_text", "expression", "hint", "symbols")

    expression: Any
    hint: int
    symbols: tuple[str, ...]
    _hash: int
    _text: str
    _scope: ref[Any]
    _scope_number: int

    def __init__(self, expression: Any, hint: int, scope: SizeScope) -> None:
        set_once = object.__setattr__
        set_once(self, "expression", expression)
        set_once(self, "hint", hint)
        set_once(self, "symbols", scope.symbols_of(expression))
        set_once(self, "_text", scope.text_of(expression))
        set_once(self, "_scope", ref(scope))  # weak: global caches hold sizes, not compilations
        set_once(self, "_scope_number", scope.number)
        set_once(self, "_hash", hash((expression, scope.number)))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable")

    @property
    def scope(self) -> SizeScope:
        """The scope of its compilation, which must be alive."""
        scope: SizeScope | None = self._scope()
        assert scope is not None, f"the compilation that {self} belongs to has been freed"
        return scope

    @property
    def symint(self) -> torch.SymInt:
        """The expression as a SymInt for fake tensors."""
        return self.scope.symint(self)

    def value(self, values: Mapping[str, int]) -> int:
        """Its value for these values of its symbols."""
        return self.scope.value(self, values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SizeExpr):
            return False
        return self._scope_number == other._scope_number and bool(self.expression == other.expression)

    def __hash__(self) -> int:
        hashed: int = self._hash
        return hashed

    def __str__(self) -> str:
        text: str = self._text
        return text

    __repr__ = __str__

    def _computed(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Size:
        if not all(isinstance(operand, int | SizeExpr) for operand in (left, right)):
            return NotImplemented  # type: ignore[no-any-return]
        computed: Size = self.scope.size(operation(on_fakes(left), on_fakes(right)))
        return computed

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
        raise SizeVariesError(f"the value of the size {self}, which varies between calls, is needed")

    __bool__ = __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _value


Size = int | SizeExpr
"""A size, a stride, an offset, or another int of a program: constant, or an expression of symbols."""


def on_fakes(value: Any) -> Any:
    """A size as a SymInt for fake tensors; tuples and lists item by item. Other values unchanged."""
    kind = type(value)
    if kind is SizeExpr:
        return value.symint
    if kind is tuple or kind is list:
        for item in value:
            if type(item) is not int:
                return kind([on_fakes(item) for item in value])
    return value


def from_fake(value: Any) -> Any:
    """A size of fake tensors as a size for traces; a tuple, list or ``torch.Size`` likewise. Other values unchanged.

    Raises:
        SizeVariesError: a float or a bool depends on varying sizes.
    """
    if isinstance(value, torch.SymInt):
        scope: SizeScope | None = value.node.shape_env.sizes()
        assert scope is not None, "a number of a compilation that has been freed"
        return scope.size(value)
    if isinstance(value, tuple | list) and any(isinstance(item, torch.SymInt) for item in value):
        items = [from_fake(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, torch.SymFloat | torch.SymBool):
        raise SizeVariesError(f"a call gives the number {value}, which depends on sizes that vary between calls")
    return value


def hint_of(size: Size) -> int:
    """The value of a size when the program was recorded."""
    return size.hint if isinstance(size, SizeExpr) else size


def least_of(size: Size) -> float:
    """A lower bound of a size that follows from the facts about its symbols; ``-inf`` if there is none."""
    return size.scope.least(size) if isinstance(size, SizeExpr) else size


def known_at_most(one: Size, other: Size) -> bool:
    """Whether ``one <= other`` for all values of the symbols. False if the facts do not decide it."""
    return least_of(other - one) >= 0


def guard_at_most(one: Size, other: Size) -> bool:
    """Whether ``one <= other``. If the facts do not decide it, the result for the hints becomes a guard."""
    return bool(on_fakes(one) <= on_fakes(other))


def are_equal(one: Sequence[Size], other: Sequence[Size]) -> bool:
    """Whether the facts imply that two shapes are equal, such as facts that the program depended on before.

    In contrast, ``==`` of sizes compares their terms.
    """

    def equal(left: Size, right: Size) -> bool:
        size = left if isinstance(left, SizeExpr) else right
        return left == right or (isinstance(size, SizeExpr) and size.scope.is_equal(left, right))

    return len(one) == len(other) and all(map(equal, one, other))


def are_constant(sizes: Iterable[Any]) -> bool:
    """Whether none of the sizes varies."""
    return not any(type(size) is SizeExpr for size in sizes)


def symbols_of(values: Iterable[Any]) -> Iterator[str]:
    """The names of the symbols in the values, in order, with repetitions."""
    for value in values:
        if type(value) is SizeExpr:
            yield from value.symbols


def as_constants(geometry: tuple[Sequence[Size], Sequence[Size], Size]) -> tuple[list[int], list[int], int]:
    """Shape, strides and offset of a tensor all of whose sizes are constants.

    Raises:
        SizeVariesError: one of them varies.
    """
    shape, stride, offset = geometry
    return list(map(int, shape)), list(map(int, stride)), int(offset)


def as_constant(size: SizeExpr, values: Mapping[str, int] | None = None) -> int:
    """The value of a size for these values of its symbols, by default those of the recording."""
    return size.hint if values is None else size.value(values)


def as_found(size: SizeExpr) -> Size:
    """A size simplified by the current facts: fixed symbols become constants, equal symbols become one."""
    simplified: Size = from_fake(size.symint)
    return simplified


def with_size(value: Any, function: Callable[[SizeExpr], Size]) -> Any:
    """``function(value)`` for a varying size; other values unchanged."""
    return function(value) if type(value) is SizeExpr else value
