"""Which classes a program makes: each call makes new ones, so that no guard checks their attributes."""

from __future__ import annotations

import inspect
import types
from types import CodeType
from typing import Final

from thunder_core.ir.import_paths import import_path

_CLASS_BODY: Final = "__qualname__"
"""A variable that the code of a ``class`` statement assigns."""
_MAKERS: Final = frozenset({types.new_class.__code__})


class MadeClasses:
    """Knows the classes that exist when code that makes classes runs first; listing 10,000 of them takes 14 ms."""

    def __init__(self) -> None:
        self._before: dict[int, type] | None = None  # alive: another class could get the id of one

    def code_runs(self, code: CodeType) -> None:
        """A code object is about to run, in this observation for the first time."""
        is_body = not code.co_flags & inspect.CO_OPTIMIZED and _CLASS_BODY in code.co_names
        if self._before is None and (is_body or code in _MAKERS):
            self._before = _classes()

    def exclude(self, kind: type) -> None:
        """The program may have made a class, but later calls get the same one."""
        if self._before is not None:
            self._before[id(kind)] = kind

    def has(self, kind: type) -> bool:
        """Whether the program has made a class; False for those of a module that it imports, which stay."""
        return self._before is not None and id(kind) not in self._before and import_path(kind) is None


def _classes() -> dict[int, type]:
    pending: list[type] = [object]
    found: dict[int, type] = {id(object): object}
    kind: type
    while pending:
        for kind in type.__subclasses__(pending.pop()):
            if id(kind) not in found:
                found[id(kind)] = kind
                pending.append(kind)
    return found
