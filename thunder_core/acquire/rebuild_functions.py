"""How to give the caller a function that the program made: its code with the closure and the defaults of each call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.guards.source import is_argument
from thunder_core.ir.import_paths import import_path

if TYPE_CHECKING:
    from thunder_core.acquire.made_objects import MadeObjects
    from thunder_core.acquire.rebuild import Rebuilder
    from thunder_core.guards.observer import Observer

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


class FunctionRebuilder:
    """Writes one function down for a `Rebuilder`. Functions that share a variable share its cell in each call too."""

    def __init__(self, rebuilder: Rebuilder, observer: Observer, handed: MadeObjects) -> None:
        self._rebuilder = rebuilder
        self._observer = observer
        self._handed = handed
        self._unfilled: list[tuple[str, CellType]] = []

    def function(self, function: FunctionType) -> str:
        """A Python function that no path leads to; those of Python modules are what they are."""
        rebuilder = self._rebuilder
        if import_path(function) is not None:  # it is the same object in each call
            return rebuilder.constant(function)
        cells = ", ".join([self._cell(cell) for cell in function.__closure__ or ()])
        parts = rebuilder.constant(FunctionParts.of(function), function.__name__)
        name = rebuilder.assign(function, f"{parts}.make({cells})")
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            held = getattr(function, attribute)
            if held:
                rebuilder.lines.append(f"{name}.{attribute} = {rebuilder.expression(held)}")
        self._fill()
        return name

    def method(self, method: MethodType) -> str:
        """A bound method: its function and its object; one that is bound to a class is what it is."""
        if isinstance(method.__self__, type):
            check_class(method.__self__, self._observer)
            return self._rebuilder.constant(method)
        parts = f"{self._rebuilder.expression(method.__func__)}, {self._rebuilder.expression(method.__self__)}"
        return self._rebuilder.assign(method, f"{self._rebuilder.constant(MethodType, 'MethodType')}({parts})")

    def _cell(self, cell: CellType) -> str:
        known = self._rebuilder.known(cell)
        if known is not None:
            return known
        closure = self._observer.closure_of(cell)
        if closure is not None:  # a variable of a function that existed before
            base = closure.base.expression(self._rebuilder)
            return self._rebuilder.assign(cell, f"{base}.__closure__[{closure.index}]")
        if self._handed.has_cell(cell):
            raise UnsupportedError(
                "the program returns or stores a function that shares a variable with a hook, or with another function "
                "that it handed to PyTorch",
                advice=("keep what both use in an attribute of an argument or of a global object",),
            )
        name = self._rebuilder.assign(cell, f"{self._rebuilder.constant(CellType, 'CellType')}()")
        self._unfilled.append((name, cell))
        return name

    def _fill(self) -> None:
        """Give new cells their content, after the functions that may be part of it."""
        while self._unfilled:
            name, cell = self._unfilled.pop()
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._rebuilder.lines.append(f"{name}.cell_contents = {self._rebuilder.expression(content)}")


def check_class(kind: type, observer: Observer) -> None:
    """Refuse a class that holds tensors of the call: classes cannot be rebuilt."""
    for tensor in _tensors_of(kind) if "<locals>" in kind.__qualname__ else ():
        source = observer.source_of(tensor)
        if source is not None and is_argument(source):
            raise UnsupportedError(
                f"the program returns or stores the class {kind.__qualname__}, which holds a tensor of the call "
                "and cannot be rebuilt",
                advice=("define the class outside of the program, and keep tensors in attributes of its objects",),
            )


def is_method_of_value(function: Any) -> bool:
    """True for a builtin method of a tensor or a container, as ``x.add`` or ``seen.append``."""
    return type(function) is BuiltinFunctionType and isinstance(function.__self__, torch.Tensor | list | dict | set)


def _tensors_of(kind: type) -> Iterator[torch.Tensor]:
    """Tensors that a class holds, and those of its functions' closures and defaults."""
    for member in vars(kind).values():
        function = getattr(member, "__func__", member)
        for value in (function, *_held_by(function)):
            if isinstance(value, torch.Tensor):
                yield value


def _held_by(function: Any) -> Iterator[Any]:
    if not isinstance(function, FunctionType):
        return
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
