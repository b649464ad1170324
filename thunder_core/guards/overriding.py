"""Classes of the user's that derive from classes of C, such as tensors and lists: which methods of these they override.

A call of a method of C enters no frame in which it could be seen. A class that overrides such a method after a program
was recorded makes it another program, though nothing that the program read has changed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from types import ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.guard import Guard, show
from thunder_core.guards.source import ConstantSource, Names

_METHODS_IN_C: Final = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
_inherited: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class OverridingGuard(Guard):
    """The names of methods and properties of its bases that a class defines itself."""

    expected: frozenset[str]
    kind: ClassVar[str] = "overriding"

    def holds(self, value: Any) -> bool:
        return overriding(value) == self.expected

    def reason(self, value: Any) -> str:
        changed = show(tuple(sorted(overriding(value) ^ self.expected)))
        return f"{self.source.describe()}: overrides other methods than before: {changed}"

    def failure(self, value: str, names: Names) -> str:
        return f"{names.constant(overriding, 'overriding')}({value}) != {names.constant(self.expected, 'methods')}"


def overriding_guards(kind: type) -> Iterator[OverridingGuard]:
    """Guards on the class of an object: one on each of its bases that is the user's and derives from a class of C."""
    for base in kind.__mro__:
        if kind_of_class(base) is CodeKind.USER and not issubclass(base, enum.Enum) and methods_of_bases(base):
            yield OverridingGuard(ConstantSource(base, base.__name__), overriding(base))


def overriding(kind: type) -> frozenset[str]:
    """The names of methods and properties of its bases that a class defines itself."""
    return methods_of_bases(kind) & vars(kind).keys()


def methods_of_bases(kind: type) -> frozenset[str]:
    """Names of methods of those bases that are not the user's, if one of these, beside `object`, has methods of C."""
    known = _inherited.get(kind)
    if known is None:
        bases = [base for base in kind.__mro__[1:] if base is not object and kind_of_class(base) is not CodeKind.USER]
        in_c = any(isinstance(member, _METHODS_IN_C) for base in bases for member in vars(base).values())
        read = [*bases, object] if in_c else []
        named = [name for base in read for name, member in vars(base).items() if hasattr(type(member), "__get__")]
        known = _inherited[kind] = frozenset(named)
    return known
