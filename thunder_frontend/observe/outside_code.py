"""Code that first runs with the compiled program, so that no observation sees it: Python kernels of operators.

It may read what the program has changed before, though the changes are made when the program ends, and may change what
the program reads. The names in its code tell what it may use, as they do for the program's own code.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import (
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import content_of
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import PACKAGES, CodeKind, is_in_installed, kind_of, kind_of_class
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import MODULE_DICTIONARIES, own_attributes

_MOST_OBJECTS: Final = 10_000
_WITHOUT_CONTENT: Final = (CodeType, GetSetDescriptorType, MemberDescriptorType, torch.Tensor)
_CREATING: Final = frozenset({"__init__", "__new__", "__post_init__"})
"""Methods that code which has an object does not call."""
_SHOWING: Final = frozenset({"__eq__", "__format__", "__hash__", "__ne__", "__repr__", "__str__"})
"""Methods that code calls which formats or compares objects."""


@dataclass
class OutsideCode:
    """What functions may use.

    Attributes:
        codes: the names in their code, and in that of the functions that they may call, by code object.
        objects: by id, the objects that they may reach, including themselves.
        reads_any: they may read anything: they call the standard library, or reach too many objects.
    """

    codes: dict[CodeType, CodeNames] = field(default_factory=dict)
    objects: dict[int, Any] = field(default_factory=dict)
    reads_any: bool = False

    @property
    def names(self) -> list[CodeNames]:
        """The names in the code."""
        return list(self.codes.values())

    def reaches(self, value: Any) -> bool:
        """Whether the code may use an object."""
        return self.reads_any or id(value) in self.objects

    def reads(self, key: Any) -> bool:
        """Whether the code may read this attribute of an object that it reaches."""
        return self.reads_any or any(names.reads(key) for names in self.names)

    @property
    def shows(self) -> bool:
        """Whether the code formats or compares objects."""
        return any(names.shown for names in self.names)

    def reads_variable(self, name: str) -> bool:
        """Whether the code may read a global or closure variable with this name."""
        return self.reads_any or any(names.reads_variable(name) for names in self.names)

    def has_globals(self, namespace: int) -> bool:
        """Whether a dictionary, by its id, has the global variables of the code."""
        return any(id(function.__globals__) == namespace for function in self._functions())

    def stored_cells(self) -> Iterator[CellType]:
        """The closure variables that the code assigns."""
        for function in self._functions():
            stored = self.codes[function.__code__].stored_cells
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                if name in stored:
                    yield cell

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that the code reaches otherwise than as arguments."""
        return [value for value in self.objects.values() if isinstance(value, torch.Tensor)]

    def _functions(self) -> list[FunctionType]:
        return [
            value for value in self.objects.values() if type(value) is FunctionType and value.__code__ in self.codes
        ]


def outside_code(functions: Iterable[Callable[..., Any]]) -> OutsideCode:
    """What functions may use: their closures, global variables and defaults, and what their names read of these."""
    code = OutsideCode()
    pending: list[Any] = list(functions)
    attributes: dict[str, list[Any]] = {}  # those of reached objects, which the code does not name
    while pending or attributes:
        if not pending:
            wanted = [name for name in attributes if code.reads(name) and (code.shows or name not in _SHOWING)]
            pending = [held for name in wanted for held in attributes.pop(name)]
            if not pending:
                break
        value = pending.pop()
        if id(value) in code.objects:
            continue
        if len(code.objects) >= _MOST_OBJECTS:
            code.reads_any = True
            break
        code.objects[id(value)] = value
        if type(value) is FunctionType:
            pending += _used_by(value, code)
        elif type(value) is MethodType:
            pending += (value.__self__, value.__func__)
        elif type(value) is functools.partial:
            pending += (value.func, value.args, value.keywords)
        elif isinstance(value, ModuleType):
            pending += () if _is_of_library(value) else vars(value).values()
        elif isinstance(value, type):
            for name, held in _defined_by(value):
                attributes.setdefault(name, []).append(held)
        elif not isinstance(value, _WITHOUT_CONTENT) and not _is_of_pytorch(type(value)):
            code.reads_any |= isinstance(value, SimpleNamespace) and code.shows
            own = own_attributes(value)
            for name in MODULE_DICTIONARIES if isinstance(value, torch.nn.Module) else ():
                own |= value.__dict__.get(name) or {}
            for name, held in (*own.items(), *_defined_by(type(value))):
                if name not in _CREATING:
                    attributes.setdefault(name, []).append(held)
            if isinstance(value, dict):
                pending += value.values()
            elif not own:  # a container, or an object of C
                pending += gc.get_referents(value)
    return code


def _is_of_pytorch(kind: type) -> bool:
    return module_of(kind).partition(".")[0] == "torch" and not issubclass(kind, torch.nn.Module)


def _defined_by(kind: type) -> Iterator[tuple[str, Any]]:
    """The attributes of a class of the user and of its bases, with the functions behind descriptors."""
    for base in kind.__mro__:
        for name, held in vars(base).items() if kind_of_class(base) is CodeKind.USER else ():
            yield name, held
            if isinstance(held, property | classmethod | staticmethod):
                yield name, held.fget if isinstance(held, property) else held.__func__


def _used_by(function: FunctionType, code: OutsideCode) -> list[Any]:
    """What a function may use beside its arguments."""
    used = [content_of(cell) for cell in function.__closure__ or ()]
    kind = kind_of(function.__code__)
    code.reads_any |= kind is CodeKind.LIBRARY
    if kind is not CodeKind.USER:
        return used
    names = code.codes[function.__code__] = names_of(function.__code__)
    used += (function.__defaults__, function.__kwdefaults__)
    for first, *attributes in names.chains:
        value = function.__globals__.get(first)
        for attribute in attributes:
            if isinstance(value, ModuleType):
                value = vars(value).get(attribute)
        used.append(value)
    return used


def _is_of_library(module: ModuleType) -> bool:
    package = module.__name__.partition(".")[0]
    return package in PACKAGES or package in sys.stdlib_module_names or is_in_installed(module.__name__)
