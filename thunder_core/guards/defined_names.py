"""The names that classes of the user's define.

What an object is asked for and its class does not define comes from the object itself, from a base, or from Python:
``bool(x)``, ``x == y``, methods of lists and tensors. A class that defines it after a program was recorded makes that
another program, though nothing that the program read has changed. What a class does define is guarded where it is read.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.guard import Guard, show
from thunder_core.guards.source import ConstantSource, Names

_MADE_LATE: Final = frozenset(
    {"__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__"}
    | {"__doc__", "__slotnames__", "_abc_impl"}
)
"""What Python keeps in a class when it is first asked for it."""


@dataclass(frozen=True, slots=True)
class DefinedNamesGuard(Guard):
    """The names that a class defines itself, special ones among them.

    Attributes:
        expected: all names in it; what Python keeps there may come and go.
    """

    expected: frozenset[str]
    kind: ClassVar[str] = "defined names"

    def holds(self, value: Any) -> bool:
        return defined_names(value) == self.expected - _MADE_LATE

    def reason(self, value: Any) -> str:
        changed = show(tuple(sorted(defined_names(value) ^ self.expected - _MADE_LATE)))
        return f"{self.source.describe()}: defines other names than before: {changed}"

    def failure(self, value: str, names: Names) -> str:
        expected = names.constant(self.expected, "defined")
        changed = f"{names.constant(vars, 'vars')}({value}).keys() != {expected}"  # half of the time of `holds`
        return f"{changed} and not {names.constant(self.holds, 'defines')}({value})"


def defined_names(kind: type) -> frozenset[str]:
    """The names that a class defines itself, without what Python keeps there."""
    return frozenset(vars(kind).keys() - _MADE_LATE)


def defined_names_guards(kind: type) -> Iterator[DefinedNamesGuard]:
    """Guards on the class of an object and its bases, as far as they are the user's and not of installed packages."""
    for base in kind.__mro__:
        if kind_of_class(base) is CodeKind.USER and not issubclass(base, enum.Enum) and not _is_installed(base):
            yield DefinedNamesGuard(ConstantSource(base, base.__name__), frozenset(vars(base)))


def _is_installed(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return f"{os.sep}site-packages{os.sep}" in str(getattr(module, "__file__", ""))
