"""Reads through C functions under other names, which are not visible in bytecode.

For getters of the ``operator`` module the attribute names are known. For an alias such as ``fetch = getattr`` they are
not: the program may then read anything.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Final

from thunder_core.guards.abstract_stack import UNKNOWN
from thunder_core.guards.code_names import CodeNames

_READERS: Final = (getattr, hasattr, vars, dir, id, hash, isinstance, issubclass, callable, globals)


class Getters:
    """The attributes that getters, and aliases of functions like `getattr`, seen so far may read.

    From then on, any code may read them of any object that it reaches, like the names in its own bytecode.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._reads_all = False
        self._extended: dict[tuple[int, frozenset[str], bool], tuple[CodeNames, CodeNames]] = {}

    def met_function(self, function: Any) -> None:
        """Note a C function that the program has under another name."""
        self._reads_all |= any(function is reader for reader in _READERS)

    def met(self, value: Any) -> None:
        """Note an object, which may be a getter."""
        if isinstance(value, operator.attrgetter):
            paths = value.__reduce__()[1]
        elif isinstance(value, operator.methodcaller):
            paths = _called(value.__reduce__())
        else:
            return
        self._names |= {name for path in paths for name in str(path).split(".")}

    def extend(self, names: CodeNames) -> CodeNames:
        """``names`` with those of the getters; the same object while no getter is met."""
        if self._names <= names.attributes and not (self._reads_all and UNKNOWN not in names.whole):
            return names
        key = (id(names), self._names, self._reads_all)
        if key not in self._extended:
            extended = replace(names, attributes=names.attributes | self._names)
            if self._reads_all:
                extended = replace(
                    extended,
                    chains=(*names.chains, ("globals",)),
                    whole=frozenset({UNKNOWN}),
                    reads_order=True,
                    asks_class=True,
                    uses_class=True,
                    compares_identity=True,
                    compares_objects=True,
                )
            self._extended[key] = (names, extended)
        return self._extended[key][1]


def _called(reduced: Any) -> tuple[str, ...]:
    """The name of the method in what ``methodcaller.__reduce__`` returns, with or without keywords."""
    make, arguments, *_ = reduced
    return (arguments[0],) if make is operator.methodcaller else (make.args[0],)
