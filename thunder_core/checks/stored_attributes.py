"""Attributes that Python objects store, in ``__dict__`` and in slots, read without running code of their classes."""

from __future__ import annotations

import collections
import functools
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any, Final, TypeVar

T = TypeVar("T")
MISSING: Final = object()
"""Replaces the value of an attribute or variable that does not exist."""


def cached_by_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """Cache the results of a function by class, with weak references to the classes."""
    # by id, whose lookup takes a sixth of that in a WeakKeyDictionary
    results: dict[int, tuple[T, weakref.ref[type]]] = {}

    @functools.wraps(function)
    def cached(kind: type, /) -> T:
        known = results.get(id(kind))
        if known is None:
            key = id(kind)
            known = results[key] = (function(kind), weakref.ref(kind, lambda _: results.pop(key, None)))
        return known[0]

    return cached


_SLOTS_IN_C: Final[Mapping[type, tuple[str, ...]]] = {
    FunctionType: ("__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__"),
    CellType: ("cell_contents",),
}


@cached_by_class
def slots_of(kind: type) -> dict[str, Any]:
    """The descriptors of the slots of a class and its bases, the first of each name.

    An attribute of a subclass may hide a slot, for example a property, which no access to the slot may run.
    """
    if kind in _SLOTS_IN_C:
        return {name: vars(kind)[name] for name in _SLOTS_IN_C[kind]}
    slots: dict[str, Any] = {}
    for base in kind.__mro__:
        for name, member in base.__dict__.items() if "__slots__" in base.__dict__ else ():
            if type(member) is MemberDescriptorType:
                slots.setdefault(name, member)
    return slots


def slot_names(kind: type) -> Collection[str]:
    """The names of the slots of a class and its bases."""
    return slots_of(kind).keys()


def reaches_slot(kind: type, name: str) -> bool:
    """Whether a class has a slot with a name that no attribute of a subclass hides."""
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return found is not None and found is slots_of(kind).get(name)


@cached_by_class
def lookup_of(kind: type) -> Callable[[Any, str], Any] | None:
    """Reads ``__dict__`` without ``__getattribute__`` of a class; None if its objects have none, as tuples."""
    if issubclass(kind, threading.local):
        return threading.local.__getattribute__  # reads the attributes of the thread
    return object.__getattribute__ if any("__dict__" in base.__dict__ for base in kind.__mro__) else None


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of an object or None, read without ``__getattr__`` or ``__getattribute__`` of its class."""
    lookup = lookup_of(type(value))
    if lookup is None:
        return None
    try:
        own: dict[str, Any] = lookup(value, "__dict__")
    except AttributeError:  # it is implemented in C
        return None
    return own


def slot_item(value: Any, name: str) -> Any:
    """The object in a slot, or `MISSING`."""
    try:
        return slots_of(type(value))[name].__get__(value)
    except (AttributeError, ValueError):  # of an empty cell
        return MISSING


def set_attributes(value: Any, state: Any) -> None:
    """Store what ``object.__getstate__`` returned; runs no code of the class."""
    slots = None
    if isinstance(state, tuple):
        state, slots = state
    if state:
        object.__getattribute__(value, "__dict__").update(state)
    for name, item in (slots or {}).items():
        slots_of(type(value))[name].__set__(value, item)


def set_default_factory(value: collections.defaultdict[Any, Any], factory: Any) -> None:
    """Set the factory of a dictionary without the ``__setattr__`` of its class."""
    vars(collections.defaultdict)["default_factory"].__set__(value, factory)


def content_of(cell: CellType) -> Any:
    """The value of a closure variable; `MISSING` if it has none."""
    return slot_item(cell, "cell_contents")


def is_filled(value: Any, name: str) -> bool:
    """Whether an object has a slot with a name, and an object in it."""
    return name in slot_names(type(value)) and slot_item(value, name) is not MISSING


PROXIES: Final = frozenset(weakref.ProxyTypes)
"""The classes of weak proxies, which have the attributes and, for `isinstance`, the class of their object."""


def referent_of(value: Any) -> Any:
    """The object behind a weak reference or proxy, or None; None for other objects, too."""
    if type(value) in PROXIES:
        try:
            return value.__init__.__self__
        except ReferenceError:
            return None
    return weakref.ref.__call__(value) if isinstance(value, weakref.ref) else None
