"""Nodes: the Python objects that a program reads, with their contents at the first visit."""

from __future__ import annotations

import collections
import enum
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module

from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.source import AttributeSource, Source, StoredAttributeSource, item_source
from thunder_core.guards.stored_content import entries, stored_items
from thunder_core.pytorch_internals import ScriptMethod

T = TypeVar("T")
MISSING = object()
"""Replaces the value of an attribute or variable that does not exist."""
MODULE_DICTIONARIES = ("_parameters", "_buffers", "_modules")


class NodeKind(enum.Enum):
    """How the contents of an object are read, compared and restored."""

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


CONTAINERS: Final = (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET)


@dataclass(slots=True, eq=False)
class Node:
    """A visited object.

    Attributes:
        object: the object. The reference keeps its id unique until the observation ends.
        source: the path of its first visit.
        kind: how its contents are read.
        attributes: the attributes that it stored at the first visit; for modules without `MODULE_DICTIONARIES`.
        content: the items of a container, or the `MODULE_DICTIONARIES` of a module, at the first visit.
        followed: by id, the `CodeNames` that were followed from it.
        changed_by: by key, the `CodeNames` of code that has stored objects in it since the first visit.
        guarded: the names of its guarded attributes.
        probed: ids of `CodeNames` and labels for which computed names and absence were guarded.
        called: a module or function that was called.
        reached: a module with a guard on its class, or a container with guards on its whole content.
        guarded_keys: the keys of a dictionary with guards on single items.
        parent: the parent of a submodule.
        depth: the number of computed attributes on its path.
    """

    object: Any
    source: Source
    kind: NodeKind
    attributes: dict[str, Any] = field(default_factory=dict)
    content: Any = None
    followed: dict[int, CodeNames] = field(default_factory=dict)
    changed_by: dict[object, CodeNames] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    probed: set[tuple[int, str | None]] = field(default_factory=set)
    called: bool = False
    reached: bool = False
    guarded_keys: set[Any] = field(default_factory=set)
    parent: Node | None = None
    depth: int = 0

    def attribute_source(self, name: str) -> Source:
        """The path to an attribute that the object stores in ``__dict__`` or in a slot."""
        is_in_dictionary = name in (namespace_of(self.object) or ())
        return StoredAttributeSource(self.source, name) if is_in_dictionary else AttributeSource(self.source, name)

    def items(self) -> Iterator[tuple[Any, Any, Source]]:
        """Key, value and path of each item in the content of a dictionary or sequence."""
        if self.kind is NodeKind.DICTIONARY or self.kind is NodeKind.SEQUENCE:
            items = self.content.items() if self.kind is NodeKind.DICTIONARY else enumerate(self.content)
            for key, value in items:
                yield key, value, item_source(self.object, self.source, key)


def node_kind(value: Any) -> NodeKind:
    """The kind of an object that is neither plain nor a tensor."""
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
"""Classes of the standard library whose objects call functions of the user, with the attributes that refer to these."""

_OPAQUE_PACKAGES = frozenset({"builtins", "numpy", "logging", "threading", "_thread", "random", "re", "contextvars"})
_OPAQUE_TORCH = ("torch._C", "torch._ops")  # operators cache lookups in their attributes
_FOLLOWED_LIBRARY = frozenset(
    {"__main__", "types", "argparse", "collections", "dataclasses", "weakref", "_weakrefset", "contextlib", "queue"}
)


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


@cached_by_class
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
    lookup = threading.local.__getattribute__ if isinstance(value, threading.local) else object.__getattribute__
    try:
        own: dict[str, Any] = lookup(value, "__dict__")
    except AttributeError:  # it has only slots, or is implemented in C
        return None
    return own


_CACHED_BY_PYTORCH: Final = frozenset(
    {f"_sym_{what}_capsule{end}" for what in ("sizes", "strides") for end in ("", "_len")}
)
"""Attributes in which PyTorch caches the sizes and strides that a wrapper subclass returned."""


def content_of(cell: CellType) -> Any:
    """The value of a closure variable; `MISSING` if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def own_attributes(value: Any) -> dict[str, Any]:
    """A copy of the attributes that an object stores in ``__dict__`` and ``__slots__``."""
    attributes = dict(namespace_of(value) or ())
    if isinstance(value, torch.Tensor):
        for name in _CACHED_BY_PYTORCH.intersection(attributes):
            del attributes[name]
    if isinstance(value, torch.jit.ScriptModule):  # it caches methods at the first read
        attributes = {name: held for name, held in attributes.items() if type(held) is not ScriptMethod}
    for name in slot_names(type(value)):
        held = getattr(value, name, MISSING)
        if held is not MISSING:
            attributes[name] = held
    return attributes


def make_node(value: Any, source: Source, kind: NodeKind) -> Node:
    """A node with a shallow copy of the current contents of ``value``."""
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


# ---------------------------------------------------------------- compiled programs

ORIGINAL: Final = "_thunder_original"
"""The slot of a compiled module that refers to its original. Only classes of compiled modules define it."""


def original_of(value: Any) -> Module | None:
    """The module from which a compiled module was compiled, with which it shares all attributes; None for all else.

    Guards read the original in place of the compiled module.
    """
    if ORIGINAL not in type(value).__dict__:
        return None
    original: Module = getattr(value, ORIGINAL)
    return original


def is_compiled(value: Any) -> bool:
    """Whether an object is one of Thunder's, such as a compiled program, in whose place its original is read."""
    return type(value).__module__.partition(".")[0] in ("thunder", "thunder_core")
