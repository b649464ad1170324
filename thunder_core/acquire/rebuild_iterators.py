"""How to give the caller a generator that the program made, and what to do about objects that cannot be copied."""

from __future__ import annotations

import gc
import inspect
import weakref
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from thunder_core.acquire.traced_tensor import is_traced

if TYPE_CHECKING:
    from thunder_core.acquire.rebuild import Rebuilder

_MOST_OBJECTS: Final = 10_000


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


def rebuild_generator(rebuilder: Rebuilder, generator: GeneratorType[Any, Any, Any]) -> str | None:
    """A generator that has not started, which runs when the caller advances it; None for one that has."""
    frame = generator.gi_frame
    if frame is None or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED:
        return None
    parts = GeneratorParts(generator.gi_code, frame.f_globals, generator.__name__, generator.__qualname__)
    values = rebuilder.expression(dict(frame.f_locals))
    return rebuilder.assign(generator, f"{rebuilder.constant(parts)}.make({values})")


def rebuild_reference(rebuilder: Rebuilder, reference: weakref.ref[Any]) -> str:
    """A weak reference to what the reference refers to."""
    referent = reference()
    if referent is None:
        return rebuilder.constant(reference)
    return rebuilder.assign(reference, f"{rebuilder.constant(weakref.ref)}({rebuilder.expression(referent)})")


def holds_traced_tensor(value: Any) -> bool:
    """Whether a traced tensor can be reached from ``value``, as far as the garbage collector knows."""
    pending, seen = [value], {id(value)}
    while pending and len(seen) < _MOST_OBJECTS:
        for held in gc.get_referents(pending.pop()):
            if is_traced(held):
                return True
            if id(held) not in seen and not isinstance(held, ModuleType | type | CodeType) and not _is_namespace(held):
                seen.add(id(held))
                pending.append(held)
    return False


def _is_namespace(value: Any) -> bool:
    return type(value) is dict and "__builtins__" in value
