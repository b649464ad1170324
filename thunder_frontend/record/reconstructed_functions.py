"""Reconstruction of functions and generators that the program creates and returns, with the values of each call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.checks.source import is_argument
from thunder_core.checks.stored_attributes import MISSING, content_of
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.import_paths import import_path
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.created_objects import CreatedObjects, FunctionParts

if TYPE_CHECKING:
    from thunder_frontend.record.reconstruction import ReconstructionWriter


class FunctionReconstructor:
    """Describes functions for the reconstruction of outputs. Functions that share a variable share its cell."""

    def __init__(self, writer: ReconstructionWriter, observer: Observer, created_objects: CreatedObjects) -> None:
        self._writer = writer
        self._observer = observer
        self._created_objects = created_objects
        self._unfilled: list[tuple[str, CellType]] = []

    def function(self, function: FunctionType) -> str:
        """The expression for a Python function that the program created."""
        writer = self._writer
        if import_path(function) is not None:  # it is the same object in each call
            return writer.constant(function)
        cells = "".join([f"{self._cell(cell)}, " for cell in function.__closure__ or ()])
        parts = writer.constant(FunctionParts.of(function), function.__name__)
        name = writer.assign(function, f"{parts}.make(({cells.rstrip()}))")
        for attribute in ("__defaults__", "__kwdefaults__", "__dict__"):
            held = getattr(function, attribute)
            if held:
                writer.statements.append(f"{name}.{attribute} = {writer.expression(held)}")
        self._fill()
        return name

    def method(self, method: MethodType) -> str:
        """The expression for a bound method: a new one for its function and object; one of a class is a constant."""
        if isinstance(method.__self__, type):
            check_class(method.__self__, self._observer)
            return self._writer.constant(method)
        parts = f"{self._writer.expression(method.__func__)}, {self._writer.expression(method.__self__)}"
        return self._writer.assign(method, f"{self._writer.constant(MethodType, 'MethodType')}({parts})")

    def _cell(self, cell: CellType) -> str:
        known = self._writer.known(cell)
        if known is not None:
            return known
        closure = self._observer.closure_of(cell)
        if closure is not None:  # a closure variable of a function that existed before
            base = closure.base.expression(self._writer)
            return self._writer.assign(cell, f"{base}.__closure__[{closure.index}]")
        if self._created_objects.has_cell(cell):
            raise RunEagerly(
                "the program returns or stores a function that shares a variable with one that it passes to PyTorch"
            )
        name = self._writer.assign(cell, f"{self._writer.constant(CellType, 'CellType')}()")
        self._unfilled.append((name, cell))
        return name

    def _fill(self) -> None:
        """Write the lines that fill new cells, after the functions that their contents may refer to."""
        while self._unfilled:
            name, cell = self._unfilled.pop()
            content = content_of(cell)
            if content is not MISSING:
                self._writer.statements.append(f"{name}.cell_contents = {self._writer.expression(content)}")


def reconstruct_generator(writer: ReconstructionWriter, generator: GeneratorType[Any, Any, Any]) -> str | None:
    """The expression for a generator that has not started, which the caller advances; None for one that has started."""
    frame = generator.gi_frame
    if frame is None or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
        return None
    names = (("__name__", generator.__name__), ("__qualname__", generator.__qualname__))
    parts = writer.constant(FunctionParts(generator.gi_code, frame.f_globals, names))
    values = writer.expression(dict(frame.f_locals))
    return writer.assign(generator, f"{writer.constant(_make_generator)}({parts}, {values})")


def _make_generator(parts: FunctionParts, values: dict[str, Any]) -> Any:
    """A generator that has not started, with these values of the parameters and closure variables of its function."""
    code = parts.code
    function = parts.make(tuple(CellType(values[name]) if name in values else CellType() for name in code.co_freevars))
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
    """Whether a function is a builtin method of a tensor or a container, as ``x.add`` or ``seen.append``."""
    return type(function) is BuiltinFunctionType and isinstance(function.__self__, torch.Tensor | list | dict | set)


def _tensors_of(kind: type) -> Iterator[torch.Tensor]:
    """Tensors among the attributes of a class, and in its functions' closures and defaults."""
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
    yield from map(content_of, function.__closure__ or ())
