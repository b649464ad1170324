"""Reconstruction of functions and generators that the program creates and returns, with the values of each call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType
from typing import Any

import torch

from thunder_core.acquire.created_objects import CreatedObjects
from thunder_core.acquire.function_parts import FunctionParts, GeneratorParts
from thunder_core.acquire.reconstruction_writer import ReconstructionWriter
from thunder_core.errors import UnsupportedError
from thunder_core.guards.observer import Observer
from thunder_core.guards.source import is_argument
from thunder_core.ir.import_paths import import_path


class FunctionReconstructor:
    """Describes functions for the reconstruction of outputs. Functions that share a variable share its cell."""

    def __init__(self, reconstructor: ReconstructionWriter, observer: Observer, handed: CreatedObjects) -> None:
        self._rebuilder = reconstructor
        self._observer = observer
        self._handed = handed
        self._unfilled: list[tuple[str, CellType]] = []

    def function(self, function: FunctionType) -> str:
        """A Python function that the program created. Functions that a path leads to are returned as they are."""
        reconstructor = self._rebuilder
        if import_path(function) is not None:  # it is the same object in each call
            return reconstructor.constant(function)
        cells = ", ".join([self._cell(cell) for cell in function.__closure__ or ()])
        parts = reconstructor.constant(FunctionParts.of(function), function.__name__)
        name = reconstructor.assign(function, f"{parts}.make({cells})")
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            held = getattr(function, attribute)
            if held:
                reconstructor.lines.append(f"{name}.{attribute} = {reconstructor.expression(held)}")
        self._fill()
        return name

    def method(self, method: MethodType) -> str:
        """A bound method: its function and its object. One that is bound to a class is returned as it is."""
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
        """Fill new cells, after the functions that their contents may refer to."""
        while self._unfilled:
            name, cell = self._unfilled.pop()
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._rebuilder.lines.append(f"{name}.cell_contents = {self._rebuilder.expression(content)}")


def reconstruct_generator(reconstructor: ReconstructionWriter, generator: GeneratorType[Any, Any, Any]) -> str | None:
    """A generator that has not started; it runs when the caller advances it. None for a generator that has started."""
    frame = generator.gi_frame
    if frame is None or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
        return None
    parts = GeneratorParts(generator.gi_code, frame.f_globals, generator.__name__, generator.__qualname__)
    values = reconstructor.expression(dict(frame.f_locals))
    return reconstructor.assign(generator, f"{reconstructor.constant(parts)}.make({values})")


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
