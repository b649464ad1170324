"""What all functions and all generators that one ``def`` makes have in common."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

_NAMES = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


@dataclass(frozen=True, eq=False)
class FunctionParts:
    """What all functions that one ``def`` or ``lambda`` makes have in common; holds no tensors of any call."""

    code: CodeType
    namespace: dict[str, Any]
    names: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, function: FunctionType) -> FunctionParts:
        """Those of ``function``."""
        names = tuple((name, getattr(function, name)) for name in _NAMES)
        return cls(function.__code__, function.__globals__, names)

    def make(self, *cells: CellType) -> FunctionType:
        """A new function over these cells, without defaults."""
        function = FunctionType(self.code, self.namespace, None, None, cells)
        for name, value in self.names:
            setattr(function, name, dict(value) if isinstance(value, dict) else value)
        return function


@dataclass(frozen=True, eq=False)
class GeneratorParts:
    """What all generators of one function have in common."""

    code: CodeType
    namespace: dict[str, Any]
    name: str
    qualname: str

    def make(self, values: dict[str, Any]) -> Any:
        """A generator that has not started.

        Args:
            values: of the parameters and of the variables from around the function.
        """
        code = self.code
        cells = tuple(CellType(values[name]) if name in values else CellType() for name in code.co_freevars)
        function = FunctionType(code, self.namespace, self.name, None, cells)
        function.__qualname__ = self.qualname
        names = list(code.co_varnames)
        positional, named = names[: code.co_argcount], names[code.co_argcount :][: code.co_kwonlyargcount]
        rest = names[code.co_argcount + code.co_kwonlyargcount :]
        args = [values[name] for name in positional]
        kwargs = {name: values[name] for name in named}
        if code.co_flags & inspect.CO_VARARGS:
            args += values[rest.pop(0)]
        if code.co_flags & inspect.CO_VARKEYWORDS:
            kwargs |= values[rest.pop(0)]
        return function(*args, **kwargs)
