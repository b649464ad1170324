"""Python objects that the program creates and passes to an op: each call creates new ones.

A hook, or an argument of an ``autograd.Function``, may be a function that closes over variables of the program. It is
an input of the trace: the prologue creates it, over the tensors and objects of the call. A variable of its closure must
have an access path, be a plain value, or be created in the same way; with anything else the call runs in eager PyTorch.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, NoReturn

import torch

from thunder_core.checks.global_state import global_module_hooks
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import ClosureSource, ConstantSource, CreatedSource, Source
from thunder_core.checks.stored_attributes import MISSING, content_of
from thunder_core.errors import RunEagerly
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import at
from thunder_core.symbols.captured import Captured, Capturing
from thunder_core.tracing.frames import CodeKind, kind_of_class, user_location
from thunder_frontend.observe.contents import node_kind
from thunder_frontend.observe.node import Node, make_node
from thunder_frontend.record.traced_number import value_of
from thunder_frontend.record.traced_tensor import is_traced, reachable

_MOST_OBJECTS = 1000
_CONTAINERS: Final = (list, set, dict, collections.OrderedDict)
"""Classes of containers that each call creates; they take an iterable of their items, or of pairs."""
_VIEWS: Final = {
    type(getattr(owner, name)()): methodcaller(name)
    for owner in (dict[Any, Any](), collections.OrderedDict[Any, Any]())
    for name in ("keys", "values", "items")
}
"""Classes of views of dictionaries, each with the function that creates one."""
_NAMES_OF_FUNCTIONS = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


@dataclass(frozen=True, eq=False)
class FunctionParts:
    """The parts that all functions of one ``def`` or ``lambda`` have in common; holds no tensors of any call."""

    code: CodeType
    namespace: dict[str, Any]
    names: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, function: FunctionType) -> FunctionParts:
        """The parts of ``function``."""
        names = tuple((name, getattr(function, name)) for name in _NAMES_OF_FUNCTIONS)
        return cls(function.__code__, function.__globals__, names)

    def make(
        self,
        cells: tuple[CellType, ...],
        defaults: tuple[Any, ...] | None = None,
        keyword_defaults: dict[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> FunctionType:
        """A new function over these cells."""
        function = FunctionType(self.code, self.namespace, None, defaults, cells)
        function.__kwdefaults__ = keyword_defaults
        for name, value in self.names:
            setattr(function, name, dict(value) if isinstance(value, dict) else value)
        function.__dict__.update(attributes or {})
        return function


class CreatedObjects:
    """The sources of objects that the program creates and passes to ops.

    Args:
        source_of: returns the path to an object that existed before the program.
        closure_of: returns the path to the closure variable with a given cell, of a function that existed before.

    Attributes:
        containers: the lists, sets and dictionaries that functions use, with their sources.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Source | None],
        closure_of: Callable[[CellType], ClosureSource | None],
    ) -> None:
        self._source_of = source_of
        self._closure_of = closure_of
        self._module_hooks = global_module_hooks()  # these are guarded
        self._made: dict[int, tuple[Any, Source | None]] = {}
        self._recorded: list[tuple[Node, str]] = []
        self.containers: list[tuple[Any, Source]] = []
        self._captured: dict[int, tuple[torch.Tensor, ConstantSource]] = {}
        self._capturing: set[Source] = set()
        self._values: dict[Source, Any] = {}

    def source(self, value: Any) -> Source:
        """The source that creates, in each call, an object without an access path that is an argument of an op.

        Raises:
            RunEagerly: a call cannot create such an object.
        """
        kind = type(value)
        if id(value) in self._module_hooks:
            return ConstantSource(value)
        if (callable(value) and not isinstance(value, torch.nn.Module)) or _attributes(value) is not None:
            return self._part(value, _name(value))
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and value.flags.writeable and value.flags.forc:
            return CreatedSource(value.copy("K").copy, (ConstantSource("K"),), "array")
        if not isinstance(value, type | ModuleType) and self._holds_tensor(value):
            _run_eagerly(f"a {kind.__qualname__} that the program creates", "a tensor of the program")
        return ConstantSource(value)

    def check(self) -> None:
        """Check, after the program has run, that variables of functions passed to ops have not changed since.

        Raises:
            RunEagerly: the program changed one.
        """
        for node, change in self._recorded:
            if any(True for _ in node.changes()):
                raise RunEagerly(
                    f"the program {change} after it passed a hook, or another function that uses it, to PyTorch"
                )

    def _record(self, value: Any, change: str) -> None:
        """Record the contents of an object for `check`; ``change`` describes a change of it."""
        self._recorded.append((make_node(value, ConstantSource(value), node_kind(value)), change))

    def has_cell(self, cell: CellType) -> bool:
        """Whether a function that the program passed to an op closes over this cell."""
        return any(node.object is cell for node, _ in self._recorded)

    def close(self) -> None:
        """Forget every object."""
        self._made.clear()
        self._recorded.clear()
        self.containers.clear()
        self._captured.clear()
        self._capturing.clear()
        self._values.clear()

    def _part(self, value: Any, where: str) -> Source:
        """The source of a function, or of an object that it refers to. A number of the trace is a constant there."""
        value = value_of(value)
        if is_traced(value):
            if id(value) not in self._captured:
                self._captured[id(value)] = value, ConstantSource(Captured(len(self._captured)), where)
            return self._captured[id(value)][1]
        source = ConstantSource(value) if is_plain(value) else self._source_of(value)
        if source is not None:
            self._values[source] = value
            return source
        known = self._made.get(id(value))
        if known is None:
            self._made[id(value)] = value, None
            known = self._made[id(value)] = value, self._make(value, where)
        if known[1] is None:
            _run_eagerly(where, f"a {type(value).__qualname__} that refers to itself")
        return known[1]

    def captured(self, source: Source) -> dict[int, torch.Tensor]:
        """The tensors of the program that an object holds, by number, which an op passes to it."""
        if _is_captured(source):
            return {known.value.number: tensor for tensor, known in self._captured.values() if known is source}
        if source not in self._capturing:
            return {}
        assert isinstance(source, CreatedSource)
        return {number: tensor for part in source.parts for number, tensor in self.captured(part).items()}

    def object_of(self, source: Source) -> Any:
        """The value of a source in this call; a `Capturing` object if it holds tensors of the program."""
        if isinstance(source, ConstantSource):
            return source.value
        if source not in self._values:
            assert isinstance(source, CreatedSource)
            self._values[source] = source.create(*map(self.object_of, source.parts))
        return self._values[source]

    def _combined(self, make: Callable[..., Any], parts: tuple[Source, ...], label: str) -> CreatedSource:
        """The source of an object created from parts; creation is deferred if a part is a tensor of the program."""
        if not any(_is_captured(part) or part in self._capturing for part in parts):
            return CreatedSource(make, parts, label)
        source = CreatedSource(functools.partial(Capturing, make), parts, label)
        self._capturing.add(source)
        return source

    def _make(self, value: Any, where: str) -> Source:
        kind = type(value)
        if kind is FunctionType:
            return self._function(value)
        if kind is MethodType:
            parts = (value.__func__, value.__self__)
            return self._combined(MethodType, tuple([self._part(part, where) for part in parts]), value.__name__)
        if kind is functools.partial:
            given = (value.func, value.args, dict(value.keywords))
            return self._combined(_partial, tuple([self._parts(part, where) for part in given]), "partial")
        if kind is tuple:
            return self._parts(value, where)
        if isinstance(value, type):
            _check_class(value, where)
        if isinstance(value, type | ModuleType) or import_path(value) is not None:
            return ConstantSource(value)
        if kind is BuiltinFunctionType and isinstance(value.__self__, type | ModuleType | None):
            return ConstantSource(value)
        if _is_one_of(kind, _CONTAINERS):
            return self._container(value, where)
        if _is_one_of(kind, _VIEWS):
            owner = next(held for held in gc.get_referents(value) if isinstance(held, dict))
            return self._combined(_VIEWS[kind], (self._part(owner, where),), kind.__name__)
        attributes = _attributes(value)
        if attributes is not None:
            self._record(value, f"changes a {kind.__qualname__}")
            items = [self._part(item, where) for item in (kind, *attributes.values())]
            return self._combined(functools.partial(_instance, tuple(attributes)), tuple(items), kind.__name__)
        _run_eagerly(where, f"a {kind.__qualname__} that the program creates")

    def _container(self, value: Any, where: str) -> Source:
        """The source of a container that each call creates: a hook may append to it, and the caller gets it."""
        items = value.items() if isinstance(value, dict) else value
        name = type(value).__name__
        parts = tuple([self._parts(item, where) for item in items])
        source = self._combined(functools.partial(_container_of, type(value)), parts, name)
        self._record(value, f"changes a {name}")
        if source not in self._capturing:
            self.containers.append((value, source))
        return source

    def is_copied(self, value: Any) -> bool:
        """Whether functions that were passed to an op hold a copy of a container of computed tensors."""
        known = self._made.get(id(value))
        return known is not None and known[1] in self._capturing and _is_one_of(type(value), _CONTAINERS)

    def _parts(self, value: Any, where: str) -> Source:
        """The source of a tuple or a dictionary of parts, or of a part."""
        if type(value) is tuple:
            return self._combined(_tuple, tuple([self._part(item, where) for item in value]), "tuple")
        if type(value) is dict:
            items = tuple([self._part(item, where) for item in value.values()])
            return self._combined(functools.partial(_dictionary, tuple(value)), items, "dict")
        return self._part(value, where)

    def _function(self, function: FunctionType) -> Source:
        if import_path(function) is not None:
            return ConstantSource(function)
        name = _name(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held = (function.__defaults__, function.__kwdefaults__, function.__dict__)
        parts = (
            self._combined(_tuple, tuple([self._cell(cell, variable, name) for variable, cell in cells]), "cells"),
            *[self._parts(part, name) for part in held],
        )
        return self._combined(FunctionParts.of(function).make, parts, function.__name__)

    def _cell(self, cell: CellType, variable: str, where: str) -> Source:
        known = self._made.get(id(cell))
        if known is not None and known[1] is not None:
            return known[1]
        outside = self._closure_of(cell)
        if outside is not None:
            source = self._combined(functools.partial(_cell_of, outside.index), (outside.base,), variable)
            self._values[source] = cell
        else:
            content = content_of(cell)
            self._record(cell, f"assigns to {variable}")
            parts = () if content is MISSING else (self._part(content, where),)
            source = self._combined(CellType, parts, variable)
        self._made[id(cell)] = cell, source
        return source

    def _holds_tensor(self, value: Any) -> bool:
        """Whether a tensor of the program is reachable from ``value`` by the garbage collector's references."""
        tensors = [held for held in reachable(value, _MOST_OBJECTS, FunctionType) if isinstance(held, torch.Tensor)]
        return any(is_traced(tensor) or self._source_of(tensor) is not None for tensor in tensors)


def _is_captured(source: Source) -> bool:
    """Whether a source represents a tensor that the program computes."""
    return isinstance(source, ConstantSource) and isinstance(source.value, Captured)


def _is_one_of(kind: type, kinds: Iterable[type]) -> bool:
    """Whether a class is one of several, without a comparison that its metaclass may define."""
    return any(kind is each for each in kinds)


def _container_of(kind: Callable[[tuple[Any, ...]], Any], *items: Any) -> Any:
    return kind(items)


def _tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _dictionary(keys: tuple[Any, ...], *items: Any) -> dict[Any, Any]:
    return dict(zip(keys, items, strict=True))


def _partial(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return functools.partial(function, *args, **keywords)


def _cell_of(index: int, function: FunctionType) -> CellType:
    assert function.__closure__ is not None
    return function.__closure__[index]


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an object whose state is only its attributes; None for other objects."""
    kind = type(value)
    if (
        kind_of_class(kind) is not CodeKind.USER
        or isinstance(value, type | torch.Tensor)
        or hasattr(kind, "__setstate__")
    ):
        return None
    try:
        reduced = value.__reduce_ex__(2)
    except TypeError:
        return None
    if reduced[:2] != (copyreg.__newobj__, (kind,)) or any(rest is not None for rest in reduced[3:]):  # type: ignore[attr-defined]
        return None
    return vars(value) if reduced[2] is None or type(reduced[2]) is dict else None


def _instance(names: tuple[str, ...], kind: type, *items: Any) -> Any:
    value: Any = object.__new__(kind)
    vars(value).update(zip(names, items, strict=True))
    return value


def _check_class(kind: type, where: str) -> None:
    """Refuse a class that the program may have created, if it holds more than functions and plain values."""
    members = vars(kind).items() if "<locals>" in kind.__qualname__ else ()
    for name, member in members:
        functions = (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,)
        for function in functions:
            if name != "__annotations__" and not _is_fixed(getattr(function, "__func__", function)):
                _run_eagerly(where, f"the class {kind.__qualname__}, whose {name} may be another one in each call")


def _is_fixed(member: Any) -> bool:
    """Whether a member of a class is the same each time the class is created."""
    if type(member) is not FunctionType:
        return is_plain(member) or isinstance(member, GetSetDescriptorType | MemberDescriptorType)
    defaults = (*(member.__defaults__ or ()), *(member.__kwdefaults__ or {}).values())
    return set(member.__code__.co_freevars) <= {"__class__"} and all(map(is_plain, defaults))


def _name(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return f"a {type(value).__qualname__}" if name is None else f"the function {name}"


def _run_eagerly(where: str, what: str) -> NoReturn:
    raise RunEagerly(f"{where}, which the program passes to PyTorch, holds {what}{at(user_location())}")
