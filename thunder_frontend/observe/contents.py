"""What Python objects store: the kinds of objects, and the tables in which they store other objects.

A row of `NodeKind` lists the classes of a kind and its tables. All tables are read, compared and changed in one way.
Recording of contents, writes of the program, their undoing, and the search for stored objects are loops over the
tables, so that a new kind of object is a new row.
"""

from __future__ import annotations

import array
import collections
import enum
import functools
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CellType, FunctionType, MethodType
from typing import Any, Final

import torch
from torch.nn import Module

from thunder_core.checks.source import (
    DirectAttributeSource,
    SlotSource,
    Source,
    StoredAttributeSource,
    global_source,
    item_source,
)
from thunder_core.checks.stored_attributes import (
    MISSING,
    cached_by_class,
    lookup_of,
    namespace_of,
    reaches_slot,
    slot_item,
    slot_names,
    slots_of,
)
from thunder_core.checks.stored_content import (
    delete_item,
    entries,
    replace_content,
    same_entries,
    store_item,
    stored_items,
)
from thunder_core.ir.import_paths import module_of
from thunder_core.pytorch_internals import ScriptMethod
from thunder_core.tracing.frames import CodeKind, kind_of_class

WHOLE: Final = object()
"""The key of a change of the whole content of a table."""
MODULE_DICTIONARIES: Final = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one place in a table, or of its whole content.

    Attributes:
        key: the name of an attribute or the key of an item; `WHOLE` for all items.
        before, now: the stored objects, `MISSING` for none; for `WHOLE` the contents.
    """

    key: Any
    before: Any
    now: Any


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table in which an object stores other objects, by name or key.

    Attributes:
        read: returns a copy of the content of the table of an object.
        get: returns the object under a key, `MISSING` for none.
        put: stores an object under a key; `MISSING` deletes the key, `WHOLE` replaces the content.
        path: the path to an entry of the object at a path.
        has_items: its entries are items of a container, not attributes.
        by_name: compare only the names that the program may assign, since others may change otherwise.
        partial: the recorded content has only such names, which are added when the program may assign them.
        content_class: the class of the content in `replace_content`.
        identity: returns an object that is equal for contents with the same entries; None if single entries change.
    """

    read: Callable[[Any], Any]
    get: Callable[[Any, Any], Any]
    put: Callable[[Any, Any, Any], None]
    path: Callable[[Any, Source, Any], Source]
    has_items: bool = False
    by_name: bool = False
    partial: bool = False
    content_class: Callable[[Any], Any] = dict
    identity: Callable[[Any], Any] | None = None

    def changes(
        self, value: Any, recorded: Any, names: Collection[str] | None = None, *, back: bool = False
    ) -> Iterator[Change]:
        """The changes that lead from the recorded content to that of the object, in this order.

        Single places change if possible, since other threads may read the object.

        Args:
            names: if not None, compare only these keys.
            back: the changes that lead from the content of the object to the recorded one.
        """
        if names is None and self.partial:
            names = recorded
        if names is not None:
            for name in names:
                before, now = recorded.get(name, MISSING), self.get(value, name)
                if before is not now:
                    yield Change(name, now, before) if back else Change(name, before, now)
            return
        now = self.read(value)
        before, after = (now, recorded) if back else (recorded, now)
        if self.identity is not None:
            if self.identity(before) != self.identity(after):
                yield Change(WHOLE, before, after)
            return
        if same_entries(before, after):  # most contents do not change
            return
        moved = _moved_keys(before, after, slot_names(type(value)))
        for key, item in before.items():
            if key not in after or key in moved:
                yield Change(key, item, MISSING)
        for key, item in after.items():
            replaced = MISSING if key in moved else before.get(key, MISSING)
            if replaced is not item:
                yield Change(key, replaced, item)


def _moved_keys(before: dict[Any, Any], after: dict[Any, Any], slots: Collection[str]) -> Collection[Any]:
    """The keys of ``before`` that were deleted and stored again, which the order of ``after`` shows; not of slots."""
    if all(map(operator.is_, before, after)):
        return ()
    positions = {key: index for index, key in enumerate(before)}
    last, order = -1, list(after)
    for index, key in enumerate(order):
        position = positions.get(key, len(before))  # those that follow a new key were stored after it
        if position < last:
            return dict.fromkeys(key for key in order[index:] if key in before and key not in slots)
        last = position
    return ()


# ---------------------------------------------------------------- attributes


_CACHED_BY_PYTORCH: Final = frozenset(
    {f"_sym_{what}_capsule{end}" for what in ("sizes", "strides") for end in ("", "_len")}
)
"""Attributes in which PyTorch caches the sizes and strides that a wrapper subclass returned."""


def _is_of_library(value: Any, name: str, held: Any) -> bool:
    """Whether an attribute belongs to PyTorch: a cache, or one of `MODULE_DICTIONARIES`."""
    if isinstance(value, Module):  # a scripted module caches methods at the first read
        return name in MODULE_DICTIONARIES or type(held) is ScriptMethod
    return name in _CACHED_BY_PYTORCH and isinstance(value, torch.Tensor)


def own_attributes(value: Any) -> dict[str, Any]:
    """A copy of the attributes that an object stores in ``__dict__`` and ``__slots__``."""
    attributes = dict(namespace_of(value) or ())
    if attributes and isinstance(value, Module | torch.Tensor):
        attributes = {name: held for name, held in attributes.items() if not _is_of_library(value, name, held)}
    for name in slot_names(type(value)):
        if (held := slot_item(value, name)) is not MISSING:
            attributes[name] = held
    return attributes


def forget_cached_methods(value: Any) -> None:
    """Delete the methods that a scripted module caches in its ``__dict__``, which `own_attributes` does not return."""
    if issubclass(type(value), torch.jit.ScriptModule):
        for name in [name for name, held in value.__dict__.items() if type(held) is ScriptMethod]:
            del value.__dict__[name]


# ---------------------------------------------------------------- tables


def _put(store: Callable[[Any, Any, Any], None], delete: Callable[[Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    def put(value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            delete(value, key)
        else:
            store(value, key, item)

    return put


def _get_attribute(value: Any, name: str) -> Any:
    """Also one of PyTorch, which `own_attributes` leaves out."""
    if name in slot_names(type(value)):
        return slot_item(value, name)
    own = namespace_of(value)
    return MISSING if own is None else own.get(name, MISSING)


def put_attribute(value: Any, name: str, item: Any) -> None:
    """Store an attribute in its slot or in ``__dict__``, or delete it if ``item`` is `MISSING`; runs no code."""
    slot = slots_of(type(value)).get(name)
    if slot is None:
        _put_entry(namespace_of(value), name, item)
    elif item is MISSING:
        slot.__delete__(value)
    else:
        slot.__set__(value, item)


_put_entry = _put(store_item, delete_item)


def _attribute_path(value: Any, source: Source, name: str) -> Source:
    """Assigned without ``__setattr__`` of the class and properties, which have run when the program was recorded."""
    kind = type(value)
    if name not in slot_names(kind):
        return StoredAttributeSource(source, name)
    if reaches_slot(kind, name) and not issubclass(kind, threading.local):  # which `object.__setattr__` refuses
        return DirectAttributeSource(source, name)
    return SlotSource(source, name, slots_of(kind)[name])


def _module_dictionary(name: str) -> Table:
    """The parameters, buffers or submodules of a module. A module whose ``__init__`` has not run may lack it."""

    def read(module: Module) -> dict[str, Any]:
        return dict(module.__dict__.get(name) or {})

    def get(module: Module, key: str) -> Any:
        held = module.__dict__.get(name) or {}  # that of a scripted module is in C++
        return held.get(key, MISSING) if isinstance(held, dict) else dict(held).get(key, MISSING)

    return Table(
        read,
        get,
        lambda module, key, item: _put_entry(module.__dict__[name], key, item),
        lambda module, source, key: StoredAttributeSource(source, key, name),
    )


def _whole(read: Callable[[Any], Any], content_class: type, identity: Callable[[Any], Any]) -> Table:
    """The items of a container whose entries do not change singly."""
    return Table(
        read,
        lambda value, key: MISSING,  # single entries are not compared
        lambda value, key, item: replace_content(value, item),
        item_source,
        has_items=True,
        content_class=content_class,
        identity=identity,
    )


_ATTRIBUTES = Table(own_attributes, _get_attribute, put_attribute, _attribute_path)
_CLASS_ATTRIBUTES = Table(
    lambda value: dict(vars(value)),
    lambda value, name: vars(value).get(name, MISSING),
    _put(type.__setattr__, type.__delattr__),
    lambda value, source, name: DirectAttributeSource(source, name, "type"),
    by_name=True,
)


def _in_c(owner: type, **read: Callable[[Any], Any]) -> Table:
    """Attributes that Python stores outside of ``__dict__``, by name, with functions that read them."""
    return Table(
        lambda value: {name: function(value) for name, function in read.items()},
        lambda value, name: read[name](value) if name in read else MISSING,
        lambda value, name, item: owner.__setattr__(value, name, item),  # type: ignore[call-arg]  # of either class
        lambda value, source, name: DirectAttributeSource(source, name, owner.__name__),
        by_name=True,
    )


_CLASS_OF_OBJECT = _in_c(object, __class__=type)
_CLASSES_OF_CLASS = _in_c(type, __class__=type, __bases__=operator.attrgetter("__bases__"))
_ENTRIES = Table(
    lambda value: dict(entries(value)),
    lambda value, key: dict.get(value, key, MISSING),
    _put_entry,
    item_source,
    has_items=True,
)
_GLOBALS = Table(
    lambda namespace: {},
    lambda namespace, name: namespace.get(name, MISSING),
    _put_entry,
    lambda namespace, source, name: global_source(namespace, name),
    partial=True,
)
_CELL_CONTENT = replace(_ATTRIBUTES, path=lambda cell, source, name: source)
_ITEMS = _whole(stored_items, list, lambda items: list(map(id, items)))
_MEMBERS = _whole(stored_items, set, lambda items: set(map(id, items)))
_BYTES = _whole(bytes, bytes, bytes)


# ---------------------------------------------------------------- kinds

PARTS: Final[Mapping[type, tuple[str, ...]]] = {
    MethodType: ("__self__", "__func__"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
}
"""Classes whose objects call functions of the user, with the attributes, which do not change, that refer to these."""


class NodeKind(enum.Enum):
    """The kinds of objects; the first whose classes fit an object is its kind.

    Attributes:
        classes: the classes of the objects.
        guard: the method of `ObjectGuards` that guards an object at its first visit.
        read: the method of `Following` that reads an object by the names in code.
        tables: what the objects store; attributes first, the class of the object last.
    """

    MODULE = (Module,), "guard_module", "read_module", _ATTRIBUTES, *map(_module_dictionary, MODULE_DICTIONARIES)
    FUNCTION = (FunctionType,), "guard_function", "read_function", _ATTRIBUTES
    DICTIONARY = (dict,), "guard_content", "read_container", _ATTRIBUTES, _ENTRIES
    SEQUENCE = (list, tuple, collections.deque), "guard_content", "read_items", _ATTRIBUTES, _ITEMS
    SET = (set, frozenset), "guard_content", "read_items", _ATTRIBUTES, _MEMBERS
    BUFFER = (bytearray, array.array), "guard_opaque", "read_attributes", _ATTRIBUTES, _BYTES
    CLASS = (type,), "guard_class", "read_class", _CLASS_ATTRIBUTES, _CLASSES_OF_CLASS
    PARTIAL = tuple(PARTS), "guard_object", "read_parts", _ATTRIBUTES
    CELL = (CellType,), "guard_object", "read_attributes", _ATTRIBUTES
    # objects of libraries, which may cache in their attributes
    OPAQUE = (), "guard_opaque", "read_attributes", replace(_ATTRIBUTES, by_name=True)
    OBJECT = (object,), "guard_object", "read_object", _ATTRIBUTES
    # variables that code may assign; they are guarded and read as such, not as entries of an object
    GLOBALS = (), "", "", _GLOBALS
    CLOSURE_VARIABLE = (), "", "", _CELL_CONTENT

    def __init__(self, classes: tuple[type, ...], guard: str, read: str, *tables: Table) -> None:
        self.classes = classes
        self.guard = guard
        self.read = read
        is_object = guard and type not in classes
        self.tables = (*tables, _CLASS_OF_OBJECT) if is_object else tables


CONTAINERS: Final = (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET)


@cached_by_class
def tables_of_class(kind: type) -> tuple[Table, ...]:
    """The `tables_of` the objects of a class."""
    tables = _kind_of_class(kind).tables
    return tables if lookup_of(kind) or slot_names(kind) else tuple([t for t in tables if t is not _ATTRIBUTES])


def tables_of(value: Any) -> tuple[Table, ...]:
    """The tables of an object that may have content: most containers have no attributes."""
    return tables_of_class(type(value))


def node_kind(value: Any) -> NodeKind:
    """The kind of an object that is neither plain nor a tensor."""
    return _kind_of_class(type(value))


@cached_by_class
def _kind_of_class(kind: type) -> NodeKind:
    found = next(row for row in NodeKind if issubclass(kind, row.classes))
    return NodeKind.OPAQUE if found is NodeKind.OBJECT and not _is_followable(kind) else found


_OPAQUE_PACKAGES = frozenset(
    {"builtins", "numpy", "logging", "_thread", "random", "re", "contextvars"}  # other records know their state
    | {"abc", "enum", "functools", "importlib", "inspect", "os", "typing", "zipimport"}  # of definitions; they cache
    | {"datetime", "decimal", "fractions", "ipaddress", "numbers", "pathlib", "uuid", "zoneinfo"}  # values, compared
)
_OPAQUE_TORCH = ("torch._C", "torch._ops")  # operators cache lookups in their attributes


def _is_followable(kind: type) -> bool:
    package = module_of(kind).partition(".")[0]
    if issubclass(kind, threading.local):
        return True
    if issubclass(kind, weakref.ref):
        return False
    if kind_of_class(kind) is CodeKind.USER:  # also one whose module is ``builtins``
        return kind.__dictoffset__ != 0 or bool(slot_names(kind))
    if package in _OPAQUE_PACKAGES or module_of(kind).startswith(_OPAQUE_TORCH):
        return False
    return kind.__dictoffset__ != 0 or bool(slot_names(kind))


def parts_of(value: Any) -> tuple[str, ...]:
    """The names in `PARTS` for an object."""
    return parts_of_class(type(value))


@cached_by_class
def parts_of_class(kind: type) -> tuple[str, ...]:
    """The names in `PARTS` for the objects of a class."""
    return next((names for base, names in PARTS.items() if issubclass(kind, base)), ())
