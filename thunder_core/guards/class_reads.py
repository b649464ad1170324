"""What code reads of classes: constants, methods, descriptors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thunder_core.guards.check import Check
from thunder_core.guards.class_names import ClassNames, constant_behind, function_behind, is_descriptor, replaces_lookup
from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import OWN_NAMES, not_its_own, own_names
from thunder_core.guards.heap import Heap
from thunder_core.guards.node import PARTS, Node
from thunder_core.guards.source import ConstantSource, Source
from thunder_core.guards.steps import AttributeSource, ItemSource

if TYPE_CHECKING:
    from thunder_core.guards.following import Following


class ClassReads:
    """Reads class attributes by names.

    Attributes:
        names: what classes offer.
    """

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self.names = ClassNames()
        self._edges: set[tuple[type, str]] = set()

    def attributes_of(self, node: Node, names: CodeNames) -> None:
        """What code reads of an object's class through the object."""
        kind = type(node.object)
        if names.asks_class:
            self.read_type(kind, names)
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if name in node.attributes and not isinstance(attribute, property):
                continue
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                self._guard_not_overridden(node, name)
                continue
            attribute = constant_behind(attribute)
            if not (is_descriptor(attribute) or isinstance(attribute, type) or name.startswith("__")):
                if replaces_lookup(kind):  # which may answer with something else
                    self._following.computed.ask_for(node, name, names)
                else:
                    self._value(node, name, attribute, names)
            elif _is_user_descriptor(attribute) or type(attribute) in PARTS:
                self._descriptor(kind, name, attribute, names)

    def read_type(self, kind: type, names: CodeNames) -> None:
        """A class that code reaches through its instances: ``type(self)``, ``self.__class__``, ``cls``."""
        node = self._heap.class_node(kind)
        if node is not None:
            self._following.follow(node, names, None)

    def _descriptor(self, kind: type, name: str, attribute: Any, names: CodeNames) -> None:
        """A descriptor of the user's, or one that calls functions of the user's.

        Their code is observed when it runs; the descriptor's own state is reached from the class.
        """
        if (kind, name) not in self._edges:
            self._edges.add((kind, name))
            owner = next(base for base in kind.__mro__ if name in base.__dict__)
            held = AttributeSource(ConstantSource(owner, owner.__name__), "__dict__")
            self._heap.meet(attribute, ItemSource(held, name))

    def _guard_not_overridden(self, node: Node, name: str) -> None:
        """A method that the object itself does not replace; PyTorch's own modules have only ``forward`` checked."""
        if name in node.edges or (name == "forward" and node.called):
            return
        if name != "forward" and type(node.object).__module__.partition(".")[0] == "torch":
            return
        node.edges.add(name)
        if hasattr(node.object, "__dict__"):
            self._heap.guards.append(not_its_own(node.source, name))

    def _value(self, node: Node, name: str, attribute: Any, names: CodeNames) -> None:
        if name not in node.edges:
            node.edges.add(name)
            self._heap.meet(attribute, AttributeSource(node.source, name), by_key=True)
        self._following.follow_all((attribute,), names, name)

    def read(self, node: Node, names: CodeNames) -> None:
        """What code reads of a class itself."""
        kind = node.object
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                continue
            value = constant_behind(attribute)
            if is_descriptor(value) or name.startswith("__"):
                continue
            if node.attributes.get(name, attribute) is attribute:  # else overwritten before it could be read
                self._value(node, name, value, names)

    def read_whole(self, node: Node, names: CodeNames) -> None:
        """A class of which any attribute may be read: those that it holds itself, and their names."""
        own = own_names(node.object)
        self.read(node, replace(names, attributes=own, probes=frozenset(), whole=frozenset()))
        if "__dict__" not in node.edges:
            node.edges.add("__dict__")
            if kind_of_class(node.object) is CodeKind.USER:
                self._heap.guards.append(Check(node.source, OWN_NAMES, own))
            else:
                self._heap.late_classes.append(node)

    def function(self, kind: type, name: str, attribute: Any = None) -> None:
        """A method: replaced on the class, it would be another program."""
        if (kind, name) in self._edges:
            return
        self._edges.add((kind, name))
        behind = function_behind(attribute or self.names.of(kind).get(name))
        if behind is None:
            return
        suffix, function = behind
        if kind_of(function.__code__) is not CodeKind.USER and name != "forward":
            return
        source: Source = AttributeSource(ConstantSource(kind, kind.__name__), name)
        self._heap.meet(function, AttributeSource(source, suffix) if suffix else source)


def _is_user_descriptor(attribute: Any) -> bool:
    return hasattr(type(attribute), "__get__") and kind_of_class(type(attribute)) is CodeKind.USER
