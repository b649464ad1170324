"""Attributes that prebuilt getters of the ``operator`` module read: their code is not Python, their names are known."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from thunder_core.guards.code_names import CodeNames


class Getters:
    """Names that the getters met so far read of the objects that they are given.

    From then on code may read these names of whatever it reaches, as it may read the names in its own bytecode.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._extended: dict[tuple[int, frozenset[str]], tuple[CodeNames, CodeNames]] = {}

    def met(self, value: Any) -> None:
        """An object was met, which may be a getter."""
        if isinstance(value, operator.attrgetter):
            paths = value.__reduce__()[1]
        elif isinstance(value, operator.methodcaller):
            paths = _called(value.__reduce__())
        else:
            return
        self._names |= {name for path in paths for name in str(path).split(".")}

    def extend(self, names: CodeNames) -> CodeNames:
        """``names`` with those of the getters; the same object while no getter is met."""
        if self._names <= names.attributes:
            return names
        key = (id(names), self._names)
        if key not in self._extended:
            self._extended[key] = (names, replace(names, attributes=names.attributes | self._names))
        return self._extended[key][1]


def _called(reduced: Any) -> tuple[str, ...]:
    """The name of the method in the recipe of a ``methodcaller``, with or without keywords."""
    make, arguments, *_ = reduced
    return (arguments[0],) if make is operator.methodcaller else (make.args[0],)
