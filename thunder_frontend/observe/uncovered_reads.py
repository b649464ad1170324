"""Reads of what a deletion uncovers: an attribute hides one of the class, and that of a class one of its bases.

A program may delete an attribute for a moment, read it again, and restore it. The second read returns what the first
did not reach, and no object has changed afterwards. So where code that may delete an attribute reaches an object, the
values behind this attribute are guarded, too. The builtin behind a global variable is in `heap.Heap.may_assign`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thunder_core.checks.own_lookups import own_lookups
from thunder_core.checks.source import AttributeSource, ConstantSource, ItemSource
from thunder_core.checks.stored_attributes import MISSING, slot_names
from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.observe.class_reads import (
    OF_PYTHON,
    Follow,
    constant_behind,
    function_behind,
    is_user_descriptor,
    is_value,
)
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import CONTAINERS, NodeKind
from thunder_frontend.observe.heap import Heap
from thunder_frontend.observe.node import Node


class UncoveredReads:
    """Guards the values behind the attributes of objects and classes that code may delete."""

    def __init__(self, heap: Heap, following: Follow) -> None:
        self._heap = heap
        self._following = following
        self._read: set[tuple[type | None, type, str]] = set()

    def read(self, node: Node, names: CodeNames) -> None:
        """Guard what lies behind the attributes of an object that code with these names may delete."""
        deleted = node.attributes.keys() & names.deleted_attributes
        if names.deletes_by_key or "__dict__" in names.stored_attributes:
            deleted |= {name for name in node.attributes if not name.startswith("__")}
        for name in sorted(deleted):
            if node.kind is NodeKind.CLASS:
                for owner in _owners(node.object, name):
                    self._behind(owner, node.object, name, names)
            elif name in slot_names(type(node.object)) or not self._behind(None, type(node.object), name, names):
                self._computed(node)

    def _behind(self, owner: type | None, kind: type, name: str, names: CodeNames) -> bool:
        """Guard the attribute of a class that follows that of ``owner``; returns whether there is one."""
        following = kind.__mro__[0 if owner is None else kind.__mro__.index(owner) + 1 :]
        base = next((base for base in following if name in vars(base)), None)
        if base is None or (owner, kind, name) in self._read:
            return base is not None
        self._read.add((owner, kind, name))
        value, known = vars(base)[name], self._heap.nodes.get(id(base))
        if known is not None and known.attributes.get(name, MISSING) is not value:  # the program has overwritten it
            return True
        held = kind if owner is None else super(owner, kind)
        source = ConstantSource(held, kind.__name__ if owner is None else f"super_of_{owner.__name__}")
        self._value(value, AttributeSource(source, name), base, names)
        return True

    def _value(self, attribute: Any, source: AttributeSource, base: type, names: CodeNames) -> None:
        """Guard an attribute of a class, with all that it holds: code with other names may read it, too."""
        behind, value = function_behind(attribute), constant_behind(attribute)
        if behind is not None:
            suffix, function = behind
            if kind_of(function.__code__) is CodeKind.USER:
                self._heap.visit(function, AttributeSource(source, suffix) if suffix else source)
        elif is_user_descriptor(value):  # its path does not call it
            namespace = AttributeSource(ConstantSource(base, base.__name__), "__dict__")
            self._heap.visit(value, ItemSource(namespace, source.name))
        elif is_value(source.name, value) or (isinstance(value, type) and source.name not in OF_PYTHON):
            child = self._heap.visit(value, source)
            self._following.follow_all((value,), names, source.name)
            if child is not None and child.kind in (NodeKind.OBJECT, *CONTAINERS):
                self._heap.objects.read_everything(child, names=True)

    def _computed(self, node: Node) -> None:
        """Guard what ``__getattr__`` of the class reads: no guard can call it while the object has the attribute."""
        lookups = own_lookups(type(node.object))
        for function in () if lookups is None else lookups.of_absent:
            self._following.follow(node, names_of(function.__code__), None)


def _owners(kind: type, name: str) -> Iterator[type]:
    """The class and those of its bases that define an attribute."""
    return (base for base in kind.__mro__ if name in vars(base))
