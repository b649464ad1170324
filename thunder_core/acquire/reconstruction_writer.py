"""The lines of a reconstruction, with the variables and the objects that they refer to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from thunder_core.guards.source import ArgumentSource, ConstantSource, FunctionSource, KeywordSource, Source

_FIXED_ROOTS = (ArgumentSource, KeywordSource, FunctionSource, ConstantSource)
"""Paths that no write changes."""


class ReconstructionWriter(ABC):
    """Collects lines; implements the `Names` protocol, by which access paths print themselves.

    Attributes:
        lines: statements that build what is needed and perform the writes.
        namespace: objects that the statements refer to by name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._variables = 0
        self._built: dict[int, str] = {}
        self._places: dict[int, str] = {}
        self._alive: list[Any] = []

    @abstractmethod
    def expression(self, value: Any) -> str:
        """Python for a value, after the lines that it needs."""

    def known(self, value: Any) -> str | None:
        """The variable of an object that has one."""
        return self._built.get(id(value))

    def assign(self, value: Any, expression: str) -> str:
        """A new variable for ``value``, which stays alive as long as the writer."""
        self._alive.append(value)  # keeps its id its own
        name = self._built[id(value)] = self._variable(expression)
        return name

    def bind(self, source: Source | None) -> None:
        """Keep the object at the end of a path, which outlives the writer, in a variable for the writes to it."""
        if source is not None and id(source) not in self._places and not isinstance(source, _FIXED_ROOTS):
            self._places[id(source)] = self._variable(source.expression(self))

    def bound(self, source: Source) -> str | None:
        """The variable of a path that was bound."""
        return self._places.get(id(source))

    def constant(self, value: Any, hint: str = "") -> str:
        """A global name of the reconstruction for an object."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def _variable(self, expression: str) -> str:
        name = f"v{self._variables}"
        self._variables += 1
        self.lines.append(f"{name} = {expression}")
        return name
