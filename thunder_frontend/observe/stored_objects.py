"""The objects that a program stores in the user's objects and variables, from where other code may read them.

`thunder_frontend.observe.following` reads the contents that objects had at their first visit. If the program stores
another object of the user there, as a context manager does that sets the current configuration, all code that reads the
place may read the attributes of this object from then on.
"""

from __future__ import annotations

import enum
import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, MappingView, Sized
from types import (
    ClassMethodDescriptorType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

from torch import Tensor

from thunder_core.checks.originals import is_compiled
from thunder_core.checks.plain import ATOM_TYPES, is_plain
from thunder_core.checks.stored_attributes import MISSING, PROXIES, cached_by_class, referent_of
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import PACKAGES
from thunder_frontend.observe.class_reads import Follow
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import (
    CONTAINERS,
    WHOLE,
    NodeKind,
    Table,
    parts_of_class,
    tables_of,
    tables_of_class,
)
from thunder_frontend.observe.heap import Heap
from thunder_frontend.observe.node import Node

MOST_FRESH: Final = 10_000
"""The number of objects in an object without a path that are read; a program that holds more is not cached."""
_OF_C: Final = (Iterator, MappingView, MappingProxyType, slice)
_OBJECT: Final[Any] = vars(AttributeError)["obj"]
_MODULES_OF_C: Final = frozenset({"builtins", "itertools", "collections", "_collections"})
"""Modules whose iterators, views and slices hold objects that only the garbage collector knows."""
_WITHOUT_STATE: Final = (FunctionType, ModuleType, type)
_WITHOUT_PARTS: Final = ATOM_TYPES | {
    *(WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType),
}


class Holder(enum.Enum):
    """From where code gets an object, if not from another object."""

    ANY = enum.auto()  # from variables that several of its frames may have, or in another way
    ARGUMENT = enum.auto()  # from an argument of one frame


class StoredObjects:
    """Follows the objects that executed code stores, by the names of the code that may read them."""

    def __init__(self, heap: Heap, following: Follow) -> None:
        self._heap = heap
        self._following = following
        # by key of the code that stores objects, and by holder: the nodes that it reads from there
        self._reached: dict[object, dict[Node | Holder, dict[Node, None]]] = {}
        self._entered: dict[int, CodeNames] = {}

    def entered(self, names: CodeNames) -> None:
        """Code with these names is entered."""
        self._entered[id(names)] = names

    def reached(self, node: Node, names: CodeNames, holder: Node | Holder) -> None:
        """Code with these names, which stores objects, reaches a node: it may change its contents."""
        if holder is not Holder.ARGUMENT:
            self._reached.setdefault(names.key, {}).setdefault(holder, {})[node] = None

    def _within_reach(self, frame: FrameType, names: CodeNames) -> Iterable[Node]:
        """The nodes that a frame may change: its code reaches them from arguments of this frame, or in another way."""
        reached, variables = self._reached.get(names.key, {}), frame.f_locals
        arguments = [self._heap.nodes.get(id(variables.get(name))) for name in names.arguments]
        found = dict.fromkeys([*reached.get(Holder.ANY, ()), *[node for node in arguments if node is not None]])
        pending = [reached[node] for node in found if node in reached]
        while pending:
            children = [node for node in pending.pop() if node not in found]
            found.update(dict.fromkeys(children))
            pending += [reached[node] for node in children if node in reached]
        return [node for node in found if not is_compiled(node.object)]

    def code_ran(self, frame: FrameType, names: CodeNames) -> None:
        """The code of a frame, which stores objects, has called a function or returned."""
        for node in self._within_reach(frame, names):
            for label, value in tuple(_stored(node, names)):
                node.changed_by[names.key] = names
                for reader in tuple(node.followed.values()):
                    self._following.reach(value, reader, label, node)
        assigned = names.stored_globals | names.stored_attributes | names.stored_cells
        for variables in tuple(self._heap.variables.values()) if assigned else ():
            for path, change in variables.changes():
                if path.describe() in assigned:
                    self._variable(path.describe(), change.now)

    def follow(self, node: Node, names: CodeNames) -> None:
        """Code with these names reads a node for the first time, after other code may have stored objects in it."""
        for writer in tuple(node.changed_by.values()):
            for label, value in tuple(_stored(node, writer)):
                self._following.reach(value, names, label, node)

    def frame_left(self, frame: FrameType, names: CodeNames, callers: Iterable[CodeNames]) -> None:
        """A frame of code that stores objects is left; its callers may read them from objects that they created."""
        self.code_ran(frame, names)
        variables = frame.f_locals
        values = [(name, variables.get(name)) for name in (*names.arguments, *names.free)]
        changed: dict[int, Any] = {}
        for name, value in values:
            if self._is_created(value) and name in names.stored_cells:
                changed[id(value)] = value
        self._find_changed([value for _, value in values], names, changed)
        for reader in callers if changed else ():
            for value in changed.values():
                self._following.reach(value, reader, None)

    def raised(self, frame: FrameType, names: CodeNames, callers: Iterable[CodeNames]) -> None:
        """A frame that may have raised an exception is left: callers that catch it may read what its code has read.

        No event has the exception itself in Python 3.11, so one that Python raises itself, as the ``KeyError`` of a
        dictionary, is not followed there.
        """
        variables = frame.f_locals
        own = (*names.arguments, *names.free, *names.stored_locals)
        pending = [variables[name] for name in own if name in variables]
        pending += [value for _, _, value in names.variables(frame.f_globals)]
        read: dict[int, Any] = {}
        while pending:
            value = pending.pop()
            node = self._heap.nodes.get(id(value))
            if id(value) not in read and node is not None and not issubclass(type(value), _WITHOUT_STATE):
                read[id(value)] = value
                pending += [node.attributes[name] for name in node.attributes.keys() & names.attributes]
                if node.kind in CONTAINERS:
                    pending += node.content.values() if node.kind is NodeKind.DICTIONARY else node.content
        for reader in callers if read else ():
            for value in read.values():
                self._following.reach(value, reader, None)

    def _is_created(self, value: Any) -> bool:
        """Whether a value is an object of the program's, in which it can store others."""
        return _is_object(value) and id(value) not in self._heap.nodes

    def _find_changed(self, values: list[Any], names: CodeNames, changed: dict[int, Any]) -> None:
        """Add objects that the program created, and their parts, to ``changed`` if the code may have stored in them.

        Callers need not read a part by the path that the code took, as ``self.target`` in a method ``__enter__``.
        """
        pending, seen = values[::-1], dict[int, Any]()
        while pending:
            value = pending.pop()
            if id(value) in seen or not self._is_created(value):
                continue
            seen[id(value)] = value
            if self.is_too_large(seen, value):
                return
            if any(_has_readers(item) for item in _stored_in_fresh(value, names)):
                changed[id(value)] = value
            pending += [part for _, part in parts_of_fresh(value, names, None)][::-1]

    def is_too_large(self, seen: Sized, value: Any) -> bool:
        """Whether the objects that were read are too many: guards do not see them all, so the program is not cached."""
        if len(seen) <= MOST_FRESH:
            return False
        self._heap.hidden_states.called(f"{type(value).__name__}, one of more than {MOST_FRESH} objects in an object")
        return True

    def _variable(self, name: str, value: Any) -> None:
        for reader in tuple(self._entered.values()) if value is not MISSING and _is_object(value) else ():
            if reader.reads_variable(name):
                self._following.reach(value, reader, name)


def _has_readers(value: Any) -> bool:
    """Whether code may read attributes of an object other than those of its class; not of a traced tensor."""
    return type(value) not in ATOM_TYPES and not (isinstance(value, Tensor) and is_compiled(value))


def parts_of_fresh(value: Any, names: CodeNames, label: str | None) -> list[tuple[str | None, Any]]:
    """The parts of an object without a path that code may read, with labels; no plain values."""
    in_c, tables = _readers(type(value))
    parts: list[tuple[str | None, Any]] = [(None, item) for item in in_c(value)] if in_c else []
    for table in tables:
        content = table.read(value)
        if table.has_items:
            items = (*content, *content.values()) if isinstance(content, dict) else content
            parts += [(None, item) for item in items]
        elif content:
            read = content if names.reads_whole(label) else sorted(content.keys() & names.attributes)
            parts += [(name, content[name]) for name in read]
    return [part for part in parts if type(part[1]) not in _WITHOUT_PARTS]


@cached_by_class
def _readers(kind: type) -> tuple[Callable[[Any], Iterable[Any]] | None, tuple[Table, ...]]:
    """What reads the parts of an object: a function for those in C that no table has, or None, and its tables.

    Objects of Thunder, such as sizes that vary, have none.
    """
    if module_of(kind).partition(".")[0] in PACKAGES:
        return None, ()
    return _reader_of_c(kind), tables_of_class(kind)


def _reader_of_c(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    if issubclass(kind, BaseException):
        return _parts_of_exception
    if kind in PROXIES or issubclass(kind, weakref.ref):
        return lambda reference: (referent_of(reference),)
    if module_of(kind) in _MODULES_OF_C and kind is not GeneratorType and issubclass(kind, _OF_C):
        return gc.get_referents
    names = parts_of_class(kind)
    return (lambda value: [getattr(value, name) for name in names]) if names else None


def _parts_of_exception(error: BaseException) -> list[Any]:
    parts = [*error.args, error.__cause__, error.__context__]
    if isinstance(error, AttributeError):
        parts.append(_OBJECT.__get__(error))
    return [part for part in parts if part is not None]


def _stored_in_fresh(value: Any, names: CodeNames) -> Iterator[Any]:
    """The objects in an object without a path that code with these names may have stored there."""
    for table in tables_of(value):
        if names.stores_items if table.has_items else names.stores_computed:
            content = table.read(value)
            yield from content.values() if isinstance(content, dict) else content
        elif not table.has_items:
            held = [table.get(value, name) for name in names.stored_attributes]
            yield from (item for item in held if item is not MISSING)


def _is_object(value: Any) -> bool:
    return type(value) not in ATOM_TYPES and not isinstance(value, Tensor)


def _stored(node: Node, names: CodeNames) -> Iterator[tuple[str | None, Any]]:
    """The objects, with labels, that code with these names may have stored in the object of a node.

    References to them must not outlive the caller: the program may have created them.
    """
    for table, recorded in node.contents():
        if table.has_items and not names.stores_items:
            continue
        stored = None if table.has_items or names.stores_computed else names.stored_attributes
        for change in table.changes(node.object, recorded, stored):
            if change.key is WHOLE:
                known = set(map(id, change.before))
                yield from ((None, item) for item in change.now if _is_object(item) and id(item) not in known)
            elif change.now is not MISSING and _is_object(change.now):
                yield (change.key if not table.has_items else _label(change.key)), change.now


def _label(key: Any) -> str | None:
    return f"[{key!r}]" if is_plain(key) else None
