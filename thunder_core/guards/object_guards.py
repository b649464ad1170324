"""Guards of one object, by its kind: containers, functions, and objects whose reads cannot be observed."""

from __future__ import annotations

import array
import contextvars
import sys
import weakref
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.guard import EqualGuard, PlainGuard, TypeGuard
from thunder_core.guards.identity_guards import CodeGuard, IdentityGuard, WeakIdentityGuard
from thunder_core.guards.node import Node, NodeKind, make_node, node_kind
from thunder_core.guards.plain import copy_content, is_plain_content
from thunder_core.guards.steps import (
    AttributeSource,
    ContextSource,
    InstanceAttributeSource,
    ItemSource,
    ReferentSource,
    item_source,
)
from thunder_core.guards.structure_guards import ArrayGuard, KeysGuard, LengthGuard, NoItemGuard

if TYPE_CHECKING:
    from thunder_core.guards.heap import Heap

_MISSING = object()


class ObjectGuards:
    """Makes guards of nodes; what the nodes lead to goes back to the heap."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._arrays: list[Node] = []

    def guard_container(self, node: Node) -> None:
        """The content of a sequence or a set."""
        value, source = node.object, node.source
        if is_plain_content(value):
            self._heap.guards.append(PlainGuard(source, copy_content(value)))
            self._note_nested(node)
            return
        self._heap.guards.append(TypeGuard(source, type(value)))
        if node.kind is NodeKind.SEQUENCE:
            self._heap.guards.append(LengthGuard(source, len(node.content)))
            for index, item in enumerate(node.content):
                self._heap.meet(item, ItemSource(source, index))
        else:  # of objects that cannot be reached by a path
            self._heap.guards.append(EqualGuard(source, value.copy()))

    def _note_nested(self, node: Node) -> None:
        """Make nodes of the containers in one that is guarded as a whole, so that writes to them are seen."""
        items = node.content.items() if node.kind is NodeKind.DICTIONARY else enumerate(node.content)
        for key, item in items:
            if type(item) in (list, dict, set, tuple) and id(item) not in self._heap.nodes:
                nested = make_node(item, item_source(node.object, node.source, key), node_kind(item))
                nested.reached = True
                self._heap.nodes[id(item)] = nested
                if nested.kind is not NodeKind.SET:
                    self._note_nested(nested)

    def read_dictionary(self, node: Node) -> None:
        """Guard the whole content of a dictionary."""
        if node.reached:
            return
        node.reached = True
        if type(node.object) is dict and is_plain_content(node.content):
            self._heap.guards.append(PlainGuard(node.source, copy_content(node.content)))
            self._note_nested(node)
            return
        self._heap.guards.append(TypeGuard(node.source, type(node.object)))
        self._heap.guards.append(KeysGuard(node.source, tuple(node.content)))
        for key, item in node.content.items():
            if key not in node.asked_keys:
                node.asked_keys.add(key)
                self._heap.meet(item, item_source(node.object, node.source, key))
            self._guard_key(key)

    def read_entry(self, node: Node, key: Any) -> None:
        """Guard one entry of a dictionary, or that it is not there."""
        if node.reached or key in node.asked_keys:
            return
        node.asked_keys.add(key)
        if key not in node.content:
            if key not in node.object:  # else written before it could be read
                self._heap.guards.append(NoItemGuard(node.source, key))
        elif dict.get(node.object, key, _MISSING) is node.content[key]:  # else overwritten before it could be read
            self._heap.meet(node.content[key], item_source(node.object, node.source, key), by_key=True)

    def _guard_key(self, key: Any) -> None:
        """An object that a dictionary is looked up with by identity."""
        node = self._heap.nodes.get(id(key))
        if node is not None and node.kind is NodeKind.OBJECT:
            self.guard_opaque(node)

    def guard_function(self, node: Node) -> None:
        """A Python function: its code and defaults; its closure is read when it runs."""
        function: FunctionType = node.object
        code = function.__code__
        if kind_of(code) not in (CodeKind.USER, CodeKind.MODULE):
            self._heap.guards.append(IdentityGuard(node.source, function))
            return
        self._heap.guards.append(CodeGuard(node.source, code))
        self._heap.functions.setdefault(id(code), []).append(node)
        self._heap.keep(code)
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value:
                self._heap.meet(value, AttributeSource(node.source, name))

    def guard_parts(self, node: Node, kind: type, names: tuple[str, ...]) -> None:
        """An object that consists of a few others."""
        self._heap.guards.append(TypeGuard(node.source, kind))
        for name in names:
            self._heap.meet(getattr(node.object, name), AttributeSource(node.source, name))

    def guard_opaque(self, node: Node) -> None:
        """An object whose reads cannot be observed: equal if it says so, else the very same."""
        value, source = node.object, node.source
        kind = type(value)
        self._heap.random_states.watch(value, source.describe())
        self._heap.getters.met(value)
        if isinstance(value, weakref.ref):
            self._heap.guards.append(TypeGuard(source, kind))
            self._heap.meet(value(), ReferentSource(source))
            return
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            self._arrays.append(node)  # whether its content counts depends on how the program uses it
            return
        if isinstance(value, MappingProxyType):
            self._read_mapping(node)
            return
        if isinstance(value, bytearray | array.array):
            self._heap.guards.append(EqualGuard(source, value[:]))
            return
        if isinstance(value, contextvars.ContextVar):
            self._read_context(node)
        if has_equality(value):
            self._heap.guards.append(EqualGuard(source, value))
            return
        try:
            reference = weakref.ref(value)
        except TypeError:
            self._heap.guards.append(IdentityGuard(source, value))
        else:
            self._heap.guards.append(WeakIdentityGuard(source, reference, kind.__name__))

    def _read_mapping(self, node: Node) -> None:
        """A read-only view of a dictionary."""
        self._heap.guards.append(TypeGuard(node.source, type(node.object)))
        self._heap.guards.append(KeysGuard(node.source, tuple(node.object)))
        for key, item in node.object.items():
            self._heap.meet(item, ItemSource(node.source, key))

    def _read_context(self, node: Node) -> None:
        """The value of a context variable."""
        value = node.object.get(None)
        self._heap.keep(value)
        self._heap.meet(value, ContextSource(node.source))

    def read_everything(self, node: Node) -> None:
        """Guard every attribute of an object, and of the objects below it."""
        own = getattr(node.object, "__dict__", ())
        for name, value in node.attributes.items():
            if name in node.edges:
                continue
            node.edges.add(name)
            step = InstanceAttributeSource if name in own else AttributeSource
            child = self._heap.meet(value, step(node.source, name))
            if child is not None and child.kind is NodeKind.OBJECT:
                self.read_everything(child)

    def finish(self) -> None:
        """Guard what had to wait until the program had run."""
        for node in self._arrays:
            lifted = id(node.object) in self._heap.tensors.asked
            self._heap.guards.append(ArrayGuard.of(node.source, node.object, content=not lifted))
        self._arrays.clear()


def has_equality(value: Any) -> bool:
    """True for a hashable object whose class defines what equality means, as a truth value."""
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ in (None, object.__hash__):
        return False
    try:
        return (value == value) is True
    except (TypeError, ValueError, RuntimeError):
        return False
