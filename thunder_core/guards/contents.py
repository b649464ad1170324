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
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module

from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import AttributeSource, Source, StoredAttributeSource, item_source
from thunder_core.guards.stored_content import (
    delete_item,
    entries,
    replace_content,
    same_items,
    store_item,
    stored_items,
)
from thunder_core.pytorch_internals import ScriptMethod

T = TypeVar("T")
MISSING: Final = object()
"""Replaces the value of an attribute or variable that does not exist."""
WHOLE: Final = object()
"""The key of a change of the whole content of a table."""
MODULE_DICTIONARIES: Final = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of one place in a table, or of its whole content.

    Attributes:
        key: the name of an attribute or the key of an item; `WHOLE` for all items.
        before, now: the stored objects, `MISSING` for none; for `WHOLE` the contents.
    """

    table: Table
    key: Any
    before: Any
    now: Any


class Table(ABC):
    """A table in which an object stores other objects, by name or key.

    Attributes:
        has_items: its entries are items of a container, not attributes.
        is_ordered: the order of the keys is part of the content.
        by_name: compare only the names that the program may assign: others may change otherwise.
        content_class: the class of a content in `replace_content`.
    """

    content_class: ClassVar[type[Any]] = dict
    has_items: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False
    by_name: bool = False

    @abstractmethod
    def read(self, value: Any) -> Any:
        """A copy of the content of the table of an object."""

    def get(self, value: Any, key: Any) -> Any:
        """The object that is stored under a key, or `MISSING`."""
        return self.read(value).get(key, MISSING)

    @abstractmethod
    def put(self, value: Any, key: Any, item: Any) -> None:
        """Store an object under a key; `MISSING` deletes the key.

        Other threads may read the object, so that changes of single places are preferred to those of `WHOLE`.
        """

    @abstractmethod
    def path(self, value: Any, source: Source, key: Any) -> Source:
        """The path to the entry of the object at ``source``."""

    def items(self, content: Any) -> Iterable[tuple[Any, Any]]:
        """The items in a content, with their keys."""
        return ()

    def label(self, key: Any) -> str | None:
        """The label of an entry in `thunder_core.guards.following`."""
        return str(key)

    def changes(
        self, value: Any, recorded: Any, names: Collection[str] | None = None, *, back: bool = False
    ) -> Iterator[Change]:
        """The changes that lead from the recorded content to that of the object, in this order.

        Args:
            names: if not None, compare only these keys.
            back: the changes that lead from the content of the object to the recorded one.
        """
        if names is None:
            now = self.read(value)
        else:
            now = {name: held for name in names if (held := self.get(value, name)) is not MISSING}
            recorded = {name: recorded[name] for name in names if name in recorded}
        before, after = (now, recorded) if back else (recorded, now)
        moved = _moved_keys(before, after) if self.is_ordered and names is None else ()
        for key, item in before.items():
            if key not in after or key in moved:
                yield Change(self, key, item, MISSING)
        for key, item in after.items():
            if key in moved or before.get(key, MISSING) is not item:
                yield Change(self, key, before.get(key, MISSING), item)


def _moved_keys(before: dict[Any, Any], after: dict[Any, Any]) -> Collection[Any]:
    """The keys of ``before`` that must be deleted and stored again to get the order of ``after``."""
    common = [key for key in before if key in after]
    if all(map(operator.is_, common, after)):
        return ()
    order = list(after)
    # a set compares keys as a dictionary does: tensors by identity
    first = next((index for index, key in enumerate(common) if order[index] not in {key}), len(common))
    return dict.fromkeys(common[first:])


@dataclass(frozen=True)
class Attributes(Table):
    """The attributes in ``__dict__`` and in slots.

    Attributes:
        builtin: attributes of a class implemented in C, which can be assigned.
    """

    builtin: tuple[str, ...] = ()
    by_name: bool = False

    def _is_slot(self, value: Any, name: str) -> bool:
        return name in self.builtin or name in slot_names(type(value))

    def read(self, value: Any) -> Any:
        attributes = own_attributes(value)
        for name in self.builtin:
            if (held := _slot(value, name)) is not MISSING:
                attributes[name] = held
        return attributes

    def get(self, value: Any, key: Any) -> Any:
        held = _slot(value, key) if self._is_slot(value, key) else (namespace_of(value) or {}).get(key, MISSING)
        return MISSING if _is_of_library(value, key, held) else held

    def put(self, value: Any, key: Any, item: Any) -> None:
        if self._is_slot(value, key):
            if item is MISSING:
                object.__delattr__(value, key)
            else:
                object.__setattr__(value, key, item)
            return
        namespace = namespace_of(value)
        assert namespace is not None
        _put_item(namespace, key, item)

    def path(self, value: Any, source: Source, key: Any) -> Source:
        return AttributeSource(source, key) if self._is_slot(value, key) else StoredAttributeSource(source, key)


@dataclass(frozen=True)
class ClassAttributes(Table):
    """The attributes that a class defines itself. Python caches others there, such as those of abstract classes."""

    by_name: bool = True

    def read(self, value: Any) -> Any:
        return dict(vars(value))

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            type.__delattr__(value, key)
        else:
            type.__setattr__(value, key, item)

    def path(self, value: Any, source: Source, key: Any) -> Source:
        return AttributeSource(source, key)


@dataclass(frozen=True)
class ModuleDictionary(Table):
    """The parameters, buffers or submodules of a module."""

    name: str
    is_ordered: ClassVar[bool] = True

    def read(self, value: Any) -> Any:
        # A module whose __init__ has not run may lack it; scripted modules have other mappings.
        return dict(value.__dict__.get(self.name) or ())

    def put(self, value: Any, key: Any, item: Any) -> None:
        _put_item(value.__dict__[self.name], key, item)

    def path(self, value: Any, source: Source, key: Any) -> Source:
        return StoredAttributeSource(source, key, self.name)

    def changes(
        self, value: Any, recorded: Any, names: Collection[str] | None = None, *, back: bool = False
    ) -> Iterator[Change]:
        if isinstance(value.__dict__.get(self.name, {}), dict):  # else a scripted module, whose attributes are in C++
            yield from super().changes(value, recorded, names, back=back)


@dataclass(frozen=True)
class Entries(Table):
    """The items of a dictionary."""

    has_items: ClassVar[bool] = True
    is_ordered: ClassVar[bool] = True

    def read(self, value: Any) -> Any:
        return dict(entries(value))

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            delete_item(value, key)
        else:
            store_item(value, key, item)

    def path(self, value: Any, source: Source, key: Any) -> Source:
        return item_source(value, source, key)

    def items(self, content: Any) -> Iterable[tuple[Any, Any]]:
        items: Iterable[tuple[Any, Any]] = content.items()
        return items

    def label(self, key: Any) -> str | None:
        return f"[{key!r}]" if is_plain(key) else None


@dataclass(frozen=True)
class Items(Table):
    """All items of a sequence or a set; they are changed together."""

    content_class: ClassVar[type[Any]] = list
    has_items: ClassVar[bool] = True

    def read(self, value: Any) -> Any:
        return stored_items(value)

    def put(self, value: Any, key: Any, item: Any) -> None:
        replace_content(value, item)

    def path(self, value: Any, source: Source, key: Any) -> Source:
        return source if key is WHOLE else item_source(value, source, key)

    def items(self, content: Any) -> Iterable[tuple[Any, Any]]:
        return enumerate(content)

    def label(self, key: Any) -> str | None:
        return None

    def _is_same(self, before: Any, now: Any) -> bool:
        return same_items(before, now)

    def changes(
        self, value: Any, recorded: Any, names: Collection[str] | None = None, *, back: bool = False
    ) -> Iterator[Change]:
        now = self.read(value)
        if not self._is_same(recorded, now):
            yield Change(self, WHOLE, *((now, recorded) if back else (recorded, now)))


@dataclass(frozen=True)
class Members(Items):
    """The items of a set, which no path leads to."""

    content_class: ClassVar[type[Any]] = set

    def items(self, content: Any) -> Iterable[tuple[Any, Any]]:
        return ()

    def _is_same(self, before: Any, now: Any) -> bool:
        return set(map(id, before)) == set(map(id, now))


@dataclass(frozen=True)
class Bytes(Members):
    """The bytes of a buffer."""

    content_class: ClassVar[type[Any]] = bytes

    def read(self, value: Any) -> Any:
        return bytes(value)

    def _is_same(self, before: Any, now: Any) -> bool:
        return bool(before == now)


def _put_item(namespace: dict[str, Any], name: str, item: Any) -> None:
    if item is MISSING:
        del namespace[name]
    else:
        namespace[name] = item


# ---------------------------------------------------------------- kinds

PARTS: Final[Mapping[type, tuple[str, ...]]] = {
    MethodType: ("__self__", "__func__"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
}
"""Classes whose objects call functions of the user, with the attributes, which do not change, that refer to these."""


class NodeKind(enum.Enum):
    """The kinds of objects, each with its classes and its tables; the first that fits an object is its kind.

    Attributes:
        classes: the classes of the objects.
        tables: what the objects store; attributes first.
    """

    MODULE = (Module,), Attributes(), *map(ModuleDictionary, MODULE_DICTIONARIES)
    FUNCTION = (FunctionType,), Attributes(("__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__"))
    DICTIONARY = (dict,), Attributes(), Entries()
    SEQUENCE = (list, tuple, collections.deque), Attributes(), Items()
    SET = (set, frozenset), Attributes(), Members()
    BUFFER = (bytearray, array.array), Attributes(), Bytes()
    CLASS = (type,), ClassAttributes()
    PARTIAL = tuple(PARTS), Attributes()
    CELL = (CellType,), Attributes(("cell_contents",))
    OPAQUE = (), Attributes(by_name=True)  # of libraries, which may cache in their attributes
    OBJECT = (object,), Attributes()

    def __init__(self, classes: tuple[type, ...], *tables: Table) -> None:
        self.classes = classes
        self.tables = tables


CONTAINERS: Final = (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET)


def cached_by_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """Cache the results of a function by class, with weak references to the classes."""
    results: WeakKeyDictionary[type, T] = WeakKeyDictionary()

    @functools.wraps(function)
    def cached(kind: type, /) -> T:
        try:
            return results[kind]
        except KeyError:
            result = results[kind] = function(kind)
            return result

    return cached


def node_kind(value: Any) -> NodeKind:
    """The kind of an object that is neither plain nor a tensor."""
    return _kind_of_class(type(value))


@cached_by_class
def _kind_of_class(kind: type) -> NodeKind:
    found = next(row for row in NodeKind if issubclass(kind, row.classes))
    return NodeKind.OPAQUE if found is NodeKind.OBJECT and not _is_followable(kind) else found


_OPAQUE_PACKAGES = frozenset({"builtins", "numpy", "logging", "threading", "_thread", "random", "re", "contextvars"})
_OPAQUE_TORCH = ("torch._C", "torch._ops")  # operators cache lookups in their attributes
_FOLLOWED_LIBRARY = frozenset(
    {"__main__", "types", "argparse", "collections", "dataclasses", "weakref", "_weakrefset", "contextlib", "queue"}
)


def _is_followable(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    if issubclass(kind, threading.local):
        return True
    if issubclass(kind, weakref.ref):
        return False
    if package in _OPAQUE_PACKAGES or kind.__module__.startswith(_OPAQUE_TORCH):
        return False
    has_state = kind.__dictoffset__ != 0 or bool(slot_names(kind))
    if package in sys.stdlib_module_names and package not in _FOLLOWED_LIBRARY:
        return False
    return has_state


def parts_of(value: Any) -> tuple[str, ...]:
    """The names in `PARTS` for an object."""
    return next((names for kind, names in PARTS.items() if isinstance(value, kind)), ())


# ---------------------------------------------------------------- attributes


@cached_by_class
def slot_names(kind: type) -> tuple[str, ...]:
    """The names of the slots of a class and its bases."""
    return tuple(
        name
        for base in kind.__mro__
        for name, member in base.__dict__.items()
        if type(member) is MemberDescriptorType and "__slots__" in base.__dict__
    )


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of an object or None, read without ``__getattr__`` or ``__getattribute__`` of its class."""
    lookup = threading.local if isinstance(value, threading.local) else object  # that of the thread, for a `local`
    try:
        own: dict[str, Any] = lookup.__getattribute__(value, "__dict__")
    except AttributeError:  # it has only slots, or is implemented in C
        return None
    return own


def _slot(value: Any, name: str) -> Any:
    """The object in a slot, or `MISSING`."""
    try:
        return object.__getattribute__(value, name)
    except (AttributeError, ValueError):  # of an empty cell
        return MISSING


def content_of(cell: CellType) -> Any:
    """The value of a closure variable; `MISSING` if it has none."""
    return _slot(cell, "cell_contents")


_CACHED_BY_PYTORCH: Final = frozenset(
    {f"_sym_{what}_capsule{end}" for what in ("sizes", "strides") for end in ("", "_len")}
)
"""Attributes in which PyTorch caches the sizes and strides that a wrapper subclass returned."""


def _is_of_library(value: Any, name: str, held: Any) -> bool:
    """Whether an attribute belongs to PyTorch: a cache, or a `ModuleDictionary`."""
    if isinstance(value, Module):  # a scripted module caches methods at the first read
        return name in MODULE_DICTIONARIES or type(held) is ScriptMethod
    return name in _CACHED_BY_PYTORCH and isinstance(value, torch.Tensor)


def own_attributes(value: Any) -> dict[str, Any]:
    """A copy of the attributes that an object stores in ``__dict__`` and ``__slots__``."""
    attributes = dict(namespace_of(value) or ())
    if isinstance(value, Module | torch.Tensor):
        attributes = {name: held for name, held in attributes.items() if not _is_of_library(value, name, held)}
    for name in slot_names(type(value)):
        if (held := _slot(value, name)) is not MISSING:
            attributes[name] = held
    return attributes
