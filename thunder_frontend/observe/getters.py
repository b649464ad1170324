"""Attributes that code may read by getters of `operator`, aliases of functions like `getattr`, or `str.format`."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import replace
from string import Formatter
from typing import Any, Final

from thunder_frontend.observe.abstract_stack import UNKNOWN
from thunder_frontend.observe.code_names import CodeNames

FORMATS: Final = frozenset({"format", "format_map"})
"""The methods of strings that read attributes: ``"{0.name}".format(value)``."""
_ATTRIBUTE: Final = re.compile(r"\.([^.\[\]]+)")
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

    def add(self, names: Iterable[str]) -> None:
        """Code reads attributes with these names, which are not in its bytecode."""
        self._names |= set(names)

    def extend(self, names: CodeNames) -> CodeNames:
        """``names`` with the attributes of the getters; ``names`` itself if that adds none."""
        if self._names <= names.attributes and not (self._reads_all and UNKNOWN not in names.whole):
            return names
        key = (id(names), self._names, self._reads_all)
        if key not in self._extended:
            extended = names.with_attributes(self._names)
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


def attributes_in_format(function: Any) -> set[str]:
    """The attributes that a call of a bound method of `FORMATS` reads from its arguments; empty for other functions."""
    text = getattr(function, "__self__", None)
    return attributes_in(text) if isinstance(text, str) and function.__name__ in FORMATS else set()


def attributes_in(text: str) -> set[str]:
    """The attributes in the fields of a format."""
    try:
        fields = list(Formatter().parse(text))
    except ValueError:  # the call raises it, too
        return set()
    own = {name for _, field, _, _ in fields for name in _ATTRIBUTE.findall(field or "")}
    return own.union(*[attributes_in(specification) for _, _, specification, _ in fields if specification])


def _called(reduced: Any) -> tuple[str, ...]:
    """The name of the method in a result of ``methodcaller.__reduce__``, with or without keyword arguments."""
    make, arguments, *_ = reduced
    return (arguments[0],) if make is operator.methodcaller else (make.args[0],)
