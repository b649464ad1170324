"""Attributes that code may read by getters of `operator`, or by aliases of functions like `getattr`."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Final

from thunder_core.guards.abstract_stack import UNKNOWN
from thunder_core.guards.code_names import CodeNames

_READERS: Final = (getattr, hasattr, vars, dir, id, hash, isinstance, issubclass, callable, globals)


class Getters:
    """The attributes that may be read by the visited getters of `operator`, and by aliases of functions like `getattr`.

    A getter contains the names of its attributes. An alias such as ``fetch = getattr`` may read any attribute. From
    the visit on, all code may read these attributes of any object, like those in its own bytecode.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._reads_all = False
        self._extended: dict[tuple[int, frozenset[str], bool], tuple[CodeNames, CodeNames]] = {}

    def visit_function(self, function: Any) -> None:
        """The program reads a C function, which it may call by another name."""
        self._reads_all |= any(function is reader for reader in _READERS)

    def visit(self, value: Any) -> None:
        """The program reads an object, which may be a getter."""
        if isinstance(value, operator.attrgetter):
            paths = value.__reduce__()[1]
        elif isinstance(value, operator.methodcaller):
            paths = _called(value.__reduce__())
        else:
            return
        self._names |= {name for path in paths for name in str(path).split(".")}

    def extend(self, names: CodeNames) -> CodeNames:
        """``names`` with the attributes of the getters; ``names`` itself if that adds none."""
        if self._names <= names.attributes and not (self._reads_all and UNKNOWN not in names.whole):
            return names
        key = (id(names), self._names, self._reads_all)
        if key not in self._extended:
            extended = replace(names, attributes=names.attributes | self._names)
            if self._reads_all:
                extended = replace(
                    extended,
                    chains={**names.chains, ("globals",): None},
                    whole={UNKNOWN},
                    reads_order=True,
                    reads_class=True,
                    uses_class=True,
                    compares_identity=True,
                    compares_types=True,
                    compares_objects=True,
                )
            self._extended[key] = (names, extended)
        return self._extended[key][1]


def _called(reduced: Any) -> tuple[str, ...]:
    """The name of the method in a result of ``methodcaller.__reduce__``, with or without keyword arguments."""
    make, arguments, *_ = reduced
    return (arguments[0],) if make is operator.methodcaller else (make.args[0],)
