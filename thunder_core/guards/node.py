"""Nodes: objects of the user's heap that were met, with what they held when they were first met."""

from __future__ import annotations

import collections
import enum
import functools
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_core.guards.source import Source
from thunder_core.guards.stored_content import entries, stored_items
from thunder_core.pytorch_internals import ScriptMethod

MISSING = object()
"""What an object has that lacks an attribute, and a Python module that lacks a variable."""
MODULE_DICTIONARIES = ("_parameters", "_buffers", "_modules")


class NodeKind(enum.Enum):
    """How an object is walked and restored."""

    MODULE = enum.auto()
    OBJECT = enum.auto()
    DICTIONARY = enum.auto()
    SEQUENCE = enum.auto()  # list, tuple and deque
    SET = enum.auto()
    FUNCTION = enum.auto()
    METHOD = enum.auto()
    PARTIAL = enum.auto()
    CLASS = enum.auto()
    OPAQUE = enum.auto()


@dataclass(slots=True, eq=False)
class Node:
    """A met object.

    Attributes:
        object: the object; held until the observation ends, so that ids stay unique.
        source: the first path it was met on.
        kind: how it is walked.
        attributes: its own attributes when it was first met; for modules without the three dictionaries.
        content: its items when it was first met (containers), or the three dictionaries (modules).
        followed: code objects (by their names) that were followed from here.
        edges: names that were already guarded.
        asked: code objects (by their names) with labels that asked for attributes by computed names or absence.
        called: it is a module or a function whose call was seen.
        reached: it is a module whose path is guarded, or a container that is guarded as a whole.
        asked_keys: keys of a dictionary that were guarded one by one.
        depth: number of computed attributes on its path.
        parent: of a module that was found below another one: that one.
    """

    object: Any
    source: Source
    kind: NodeKind
    attributes: dict[str, Any] = field(default_factory=dict)
    content: Any = None
    followed: set[int] = field(default_factory=set)
    edges: set[str] = field(default_factory=set)
    asked: set[tuple[int, str | None]] = field(default_factory=set)
    called: bool = False
    reached: bool = False
    asked_keys: set[Any] = field(default_factory=set)
    parent: Node | None = None
    depth: int = 0


def node_kind(value: Any) -> NodeKind:
    """How ``value``, which is neither plain nor a tensor, is walked."""
    kind = type(value)
    if isinstance(value, torch.nn.Module):
        return NodeKind.MODULE
    if kind is FunctionType:
        return NodeKind.FUNCTION
    if isinstance(value, dict):
        return NodeKind.DICTIONARY
    if isinstance(value, list | tuple | collections.deque):
        return NodeKind.SEQUENCE
    if isinstance(value, set | frozenset):
        return NodeKind.SET
    if isinstance(value, type):
        return NodeKind.CLASS
    if kind is MethodType:
        return NodeKind.METHOD
    if kind in PARTS:
        return NodeKind.PARTIAL
    return NodeKind.OBJECT if _is_followable(kind) else NodeKind.OPAQUE


PARTS: Final[Mapping[type, tuple[str, ...]]] = {
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
}
"""Classes of the standard library whose objects call functions of the user's, with the attributes that say which."""

_OPAQUE_PACKAGES = frozenset({"builtins", "numpy", "logging", "threading", "_thread", "random", "re", "contextvars"})
_OPAQUE_TORCH = ("torch._C", "torch._ops")  # operators keep what they have looked up in attributes of their own
_FOLLOWED_LIBRARY = frozenset(
    {"__main__", "types", "argparse", "collections", "dataclasses", "weakref", "_weakrefset", "contextlib", "queue"}
)


def _is_followable(kind: type) -> bool:
    known = _followable.get(kind)
    if known is None:
        known = _followable[kind] = _has_readable_state(kind)
    return known


def _has_readable_state(kind: type) -> bool:
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


def slot_names(kind: type) -> tuple[str, ...]:
    """Attributes that objects of the class keep in ``__slots__``."""
    known = _slots.get(kind)
    if known is None:
        known = _slots[kind] = _find_slots(kind)
    return known


def _find_slots(kind: type) -> tuple[str, ...]:
    return tuple(
        name
        for base in kind.__mro__
        for name, member in base.__dict__.items()
        if type(member) is MemberDescriptorType and "__slots__" in base.__dict__
    )


_followable: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
_slots: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of an object, or None, without a call of its class's ``__getattr__`` or ``__getattribute__``."""
    try:
        own: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots only, or is of C
        return None
    return own


_KEPT_BY_PYTORCH: Final = frozenset(
    {f"_sym_{what}_capsule{end}" for what in ("sizes", "strides") for end in ("", "_len")}
)
"""Attributes in which PyTorch keeps what a wrapper subclass once said of its sizes."""


def own_attributes(value: Any) -> dict[str, Any]:
    """A copy of the attributes that ``value`` keeps itself, in ``__dict__`` and ``__slots__``."""
    attributes = dict(namespace_of(value) or ())
    if isinstance(value, torch.Tensor):
        for name in _KEPT_BY_PYTORCH.intersection(attributes):
            del attributes[name]
    if isinstance(value, torch.jit.ScriptModule):  # methods that it keeps when they are first asked for
        attributes = {name: held for name, held in attributes.items() if type(held) is not ScriptMethod}
    for name in slot_names(type(value)):
        held = getattr(value, name, MISSING)
        if held is not MISSING:
            attributes[name] = held
    return attributes


def make_node(value: Any, source: Source, kind: NodeKind) -> Node:
    """A node with a shallow snapshot of ``value`` as it is now."""
    node = Node(value, source, kind)
    if kind is NodeKind.MODULE:
        attributes = node.attributes = own_attributes(value)
        # A module whose __init__ has not run (or a scripted one) may lack them.
        node.content = tuple(dict(attributes.pop(name, ()) or ()) for name in MODULE_DICTIONARIES)
    elif kind is NodeKind.DICTIONARY:
        node.content = dict(entries(value))
        node.attributes = own_attributes(value)
    elif kind is NodeKind.SEQUENCE or kind is NodeKind.SET:
        node.content = stored_items(value)
        node.attributes = own_attributes(value)
    elif kind is NodeKind.OBJECT:
        node.attributes = own_attributes(value)
    elif kind is not NodeKind.METHOD and kind is not NodeKind.PARTIAL:
        node.attributes = dict(namespace_of(value) or ())
    return node
