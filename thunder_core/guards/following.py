"""Follow the names that executed code may read from the objects it can reach.

The closure over-approximates: every name in a code object is tried on every object that is reached from the frame's
arguments, closure and globals by such names. Objects are looked at as they were when they were first met, so what the
program writes before reading it back is not guarded.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

from thunder_core.guards.class_names import has_own_lookup, replaces_lookup
from thunder_core.guards.class_reads import ClassReads
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.computed_reads import ComputedReads
from thunder_core.guards.conditions import not_its_own
from thunder_core.guards.dynamic_reads import MISSING, DynamicReads
from thunder_core.guards.fresh_objects import parts_of_fresh
from thunder_core.guards.heap import UNREAD_PACKAGES, Heap, is_wrapper
from thunder_core.guards.module_reads import ModuleReads
from thunder_core.guards.node import PARTS, Node, NodeKind
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import GlobalSource, Source
from thunder_core.guards.steps import AttributeSource, InstanceAttributeSource, module_variable

_PLAIN_CONTAINER_MODULES = ("builtins", "collections")
_DEEPEST_FRESH = 4
_DESCRIBING = frozenset({"__name__", "__qualname__", "__doc__", "__annotations__"})
_FIXED_FOR_CLASSES = frozenset({"__name__", "__qualname__"})
"""Nobody renames classes, whose names much code logs."""


class Following:
    """Reads objects by names; what is found goes to the heap's guards.

    Objects carry a label when they are followed: the variable or attribute that they were reached through, None when
    that is not known. It restricts names that are asked of one object only (``getattr(config, "flag", None)``).

    Attributes:
        classes, modules, computed: read what classes and modules hold, and what objects compute.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.classes = ClassReads(heap, self)
        self.modules = ModuleReads(heap, self)
        self.computed = ComputedReads(heap, self)
        self._dynamic = DynamicReads(heap, self)
        self._namespaces: set[tuple[int, int]] = set()

    def follow(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard what ``names`` reads from the node, and go on from there."""
        if is_wrapper(node.object):
            self.follow_all(tuple(node.attributes.values()), names, label)
            return
        if names.probes or names.whole:
            self._dynamic.read(node, names, label)
        if node.kind is NodeKind.DICTIONARY:
            self._follow_dictionary(node, names, label)
        if node.kind is NodeKind.SEQUENCE and not node.reached:
            if names.only_appends(label):
                return
            self._heap.objects.guard_container(node)
        if id(names) in node.followed:
            return
        node.followed.add(id(names))
        kind = node.kind
        if kind is NodeKind.MODULE:
            self.modules.read(node, names)
        elif kind is NodeKind.OBJECT:
            self._follow_object(node, names)
        elif kind in (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET):
            if kind is not NodeKind.DICTIONARY:
                self.follow_all(node.content, names)
            if type(node.object).__module__ not in _PLAIN_CONTAINER_MODULES:
                self._follow_object(node, names)
        elif kind is NodeKind.FUNCTION or kind is NodeKind.OPAQUE:
            self._heap.asked(node, names)
            if isinstance(node.object, weakref.ref):
                self.follow_all((node.object(),), names)
            self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
            if kind is NodeKind.FUNCTION:
                self._describe(node, names)
        elif kind is NodeKind.CLASS:
            self.classes.read(node, names)
            self._describe(node, names)
        elif kind is NodeKind.METHOD:
            self.follow_all((node.object.__self__,), names)
        elif kind is NodeKind.PARTIAL:
            self.follow_all([getattr(node.object, part) for part in PARTS[type(node.object)]], names)

    def _describe(self, node: Node, names: CodeNames) -> None:
        """What a function or a class says about itself, which other functions with its code need not say."""
        for name in sorted(names.attributes & _DESCRIBING):
            if name not in node.edges and not (node.kind is NodeKind.CLASS and name in _FIXED_FOR_CLASSES):
                node.edges.add(name)
                value = getattr(node.object, name, None)
                self._heap.keep(value)
                self._heap.meet(value, AttributeSource(node.source, name))
        if "__globals__" in names.attributes and node.kind is NodeKind.FUNCTION:
            self.read_namespace(node.object.__globals__, names)

    def read_namespace(self, namespace: dict[str, Any], names: CodeNames) -> None:
        """All global variables of a Python module, which code may ask for by computed names."""
        key = (id(namespace), id(names))
        if key in self._namespaces:
            return
        self._namespaces.add(key)
        module = str(namespace.get("__name__", ""))
        for name, value in tuple(namespace.items()):
            stored = self._heap.stored_globals.get((id(namespace), name))
            if not name.startswith("__") and (stored is None or stored[1] is value):
                source = GlobalSource(module, name, namespace)
                self._heap.read_global((id(namespace), name), value, source, late=module.partition(".")[0] == "torch")
                self.follow_all((value,), names, name)

    def follow_all(self, values: Iterable[Any], names: CodeNames, label: str | None = None) -> None:
        """Follow those of the values that are nodes, and the tensors to which the code may give attributes."""
        nodes = self._heap.nodes
        for value in values:
            node = nodes.get(id(value))
            if node is not None:
                self.follow(node, names, label)
            elif names.stored_attributes and isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, label)

    def reach(self, value: Any, names: CodeNames, label: str | None, depth: int = 0) -> None:
        """An argument, a closure variable or a returned value: follow it, through objects that the program made."""
        kind = type(value)
        if kind in ATOM_TYPES:
            return
        if isinstance(value, torch.Tensor):
            self.follow_tensor(value, names, label)
            return
        node = self._heap.nodes.get(id(value))
        if node is not None:
            self.follow(node, names, label)
            return
        if isinstance(value, type):
            self.classes.read_type(value, names)
            return
        if isinstance(value, ModuleType):
            self.follow_python_module(value, names.attributes, names)
            return
        if depth > _DEEPEST_FRESH:
            return
        for name, item in parts_of_fresh(value, names, label):
            self.reach(item, names, name, depth + 1)

    def follow_tensor(self, tensor: torch.Tensor, names: CodeNames, label: str | None) -> None:
        """Python attributes that were put on a tensor; what a tensor has by itself is no business of guards."""
        probed = bool(names.probes) and any(not hasattr(torch.Tensor, name) for name in names.probed(label))
        node = self._heap.tensor_node(tensor, written=bool(names.stored_attributes) or probed)
        if node is None:
            return
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        for name in names.probed(label) if probed else ():
            if name not in node.edges and name not in node.attributes and not hasattr(type(tensor), name):
                node.edges.add(name)
                self._heap.guards.append(not_its_own(node.source, name))

    def _follow_dictionary(self, node: Node, names: CodeNames, label: str | None) -> None:
        """The entries that the code asks for; the rest of the content is followed when it was read."""
        keys = names.keys_of(label)
        if keys is None or type(node.object).__module__ not in _PLAIN_CONTAINER_MODULES:
            self._heap.objects.read_dictionary(node)
            if (id(names), None) not in node.asked:
                node.asked.add((id(names), None))
                self.follow_all(node.content.values(), names)
            return
        for key in keys:
            self._heap.objects.read_entry(node, key)
            if key in node.content:
                self.follow_all((node.content[key],), names, f"[{key!r}]")

    def follow_python_module(self, module: ModuleType, wanted: Iterable[str], names: CodeNames) -> None:
        """Variables of a Python module that is reached as an object."""
        held, package = vars(module), module.__name__.partition(".")[0]
        if package in UNREAD_PACKAGES:
            return
        self.module_written(module, names)
        for name in sorted(held.keys() & wanted):
            value = held[name]
            self._heap.read_global((id(held), name), value, module_variable(module, name), late=package == "torch")
            self.follow_all((value,), names, name)

    def module_written(self, module: ModuleType, names: CodeNames) -> None:
        """Remember what a Python module, none of PyTorch's, holds by the names that the code assigns to attributes."""
        if module.__name__.partition(".")[0] in UNREAD_PACKAGES | {"torch"}:
            return
        held = vars(module)
        for name in names.stored_attributes:
            source = GlobalSource(module.__name__, name, held)
            self._heap.stored_globals.setdefault((id(held), name), (source, held.get(name, MISSING)))

    def _follow_object(self, node: Node, names: CodeNames) -> None:
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        self.classes.attributes_of(node, names)
        if has_own_lookup(type(node.object)):
            self.computed.read(node, names)

    def attributes_of(self, node: Node, read: Iterable[str], names: CodeNames, *, labelled: bool = True) -> None:
        """Attributes that the object holds itself; not labelled when they may be asked for otherwise than by name."""
        own = getattr(node.object, "__dict__", None)
        asks = replaces_lookup(type(node.object))
        for name in read:
            if asks:
                self.computed.ask_for(node, name, names)
                continue
            value = node.attributes[name]
            child = self._heap.nodes.get(id(value))
            if name not in node.edges:
                node.edges.add(name)
                source: Source
                if own is not None and name in own:
                    source, unchanged = InstanceAttributeSource(node.source, name), own[name] is value
                else:  # in a slot, or deleted since
                    source = AttributeSource(node.source, name)
                    unchanged = getattr(node.object, name, MISSING) is value
                if unchanged:
                    child = self._heap.meet(value, source, by_key=True)
            if isinstance(value, ModuleType):
                self.follow_python_module(value, names.attributes, names)
            if child is not None:
                self.follow(child, names, name if labelled else None)
            elif isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, name if labelled else None)
            now = own.get(name, value) if own is not None else value
            if now is not value:  # the program has put another object there
                self.follow_all((now,), names, name)
